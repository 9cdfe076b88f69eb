// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workloadkind describes the kinds of root workloads in a table: where a kind
// has its pod templates, how it is stopped, and how its owner starts it again.
//
// Its functions read an object of any kind, as JSON decoders return it: its templates,
// the hash of its programs, whether it requests pods, and whether a change starts it.
// They do no I/O and never change an object. An object only states what its owner
// requested; whether pods still run must be read from the pods.
package workloadkind
