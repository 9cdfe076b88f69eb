// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extension asks for more time, and decides on what others ask.
//
// Enters: what a person wants of which workload or project, and why. Leaves: an
// Extension, what became of it, and the decisions of those who may decide.
//
// It never judges: what a department grants by itself and who may decide on the
// rest is known to the cluster alone.
package extension
