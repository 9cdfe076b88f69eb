// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conflict keeps ordinary conflicts out of the log.
//
// Enters: what a reconciler returns. Leaves: the same, but for a write that met
// a newer version of its object: that is tried again soon, and is no error. It
// never hides another failure.
package conflict
