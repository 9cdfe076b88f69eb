// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheme knows every kind of object that Sluice reads or writes.
//
// Enters: nothing. Leaves: a scheme with Kubernetes' kinds and Sluice's own. It
// never changes a scheme that it gave out.
package scheme
