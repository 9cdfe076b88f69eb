// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package procfs reads the processes of the host that a node's agent has to know, and
// the identity of its boot.
//
// Enters: the root of the host's procfs. Leaves: command lines, and a SIGHUP where one
// is asked for. A process is held by its open folder between its choice and the
// signal, so that no other can take its number meanwhile.
//
// It never lists what processes do, never sends another signal, and never waits for a
// process that hangs.
package procfs
