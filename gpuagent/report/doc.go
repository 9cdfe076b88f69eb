// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report writes what the agent found into the status of its node's GPUNode.
//
// Enters: the GPUs as they are, and what became of what the spec asks. Leaves: the
// status, in a write of its own at most once a second, and none where nothing changed.
//
// It never writes the spec, nor the part of the status that tells how GPUs are used.
package report
