// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kinds knows the kinds of root workloads as data: where each has its
// pod templates, what stops it, and how its owner starts it again.
//
// Enters: an object of any kind, as JSON decoders leave it. Leaves: its row of
// the table, its templates, the hash of what it runs, whether it asks to run,
// and whether a change starts it again.
//
// It never changes an object and does no I/O. What an object says of itself is
// what its author wants: whether pods still run, the pods tell.
package workloadkind
