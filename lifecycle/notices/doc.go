// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notices records who is to be told what. It is the place of the one seam
// to mail, which is not built yet.
//
// Enters: an [Announcement], and the people it is for. Leaves: a Notice for each
// of them. Its name is made of what it says, so that the same is recorded once,
// whoever records it and however often.
//
// It never decides who is told what, or when.
package notices
