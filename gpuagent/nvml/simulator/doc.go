// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulator is a node's GPUs without the GPUs: boards that are cut, held,
// lost and rebooted as real ones are, only less kindly.
//
// Enters: a [Config] (which boards), the calls of [nvml.Library], and what happens to
// a node: processes that come and go ([Node.Attach]), reboots ([Node.Boot]), boards
// that fall off the bus ([Node.Lose]), faults in the middle of a call ([Node.Fail],
// [Hooks]). Leaves: the driver's answers and its errors.
//
// What the driver promises holds; what it does not promise is different each time:
// the order of lists, indices after a reset, the UUID of an instance at a place where
// there was one before. Two instances never overlap ([Node.Check]).
//
// It never decides what should be, runs nothing, and measures nothing: how busy a
// process is, is what it was attached with.
package simulator
