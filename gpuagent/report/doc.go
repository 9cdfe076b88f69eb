// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report writes what the agent found into the status of its node's GPUNode.
//
// Enters: the GPUs as they are, who was given them, and what became of what the spec asks. Leaves: the
// status, in a write of its own at most once a second, and none where nothing changed.
//
// It never writes the spec, nor what the schema would refuse, by which nothing at all
// would be reported.
package report
