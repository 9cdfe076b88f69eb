// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live keeps an engine in step with the Policy objects of the cluster.
//
// Enters: the policies that are built in, and the Policy objects as a cache has
// them, again after each change. Leaves: an engine that has both in force, what
// became of each ([engine.Report]), and whether the engine may be asked yet.
//
// A built-in policy is what the program was built with. The Policy object that
// mirrors it (it has the same name, and the label sluice.dev/built-in) gives it
// spec.parameters and nothing else: whatever else is written there, the built-in
// policy stays as it is. Where one of the parameters is wrong, none of them is taken:
// the last good ones stay, and the reports say which is wrong. An object that takes a built-in policy's name without
// the label gives nothing, and neither does one that has the label without being
// a built-in policy's: both are ignored, and the reports say so.
//
// It never writes the cluster.
package live
