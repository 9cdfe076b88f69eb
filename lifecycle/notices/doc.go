// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notices is the place of the one seam to mail. It is not built yet.
//
// Enters: Notices. Leaves: mail, and in each Notice whether and when it was
// sent. It never decides who is told what.
package notices
