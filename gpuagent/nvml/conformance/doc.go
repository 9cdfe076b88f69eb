// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance is what nvml.Library promises, as a suite of tests that every
// implementation is held to.
//
// Enters: how to make a node of an implementation, and what it lacks, with the reason.
// Leaves: a test for each promise, and how many were kept, and how many left out and why.
// A case that is left out is a skipped test with its reason, and never counts as kept.
//
// It never asks for more than the interface promises, and on a target that is read-only it
// never calls what changes a GPU.
package conformance
