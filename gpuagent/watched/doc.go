// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watched is a driver whose calls are timed, and that tells of one that does
// not return.
//
// Enters: the calls of the agent. Leaves: the same calls to the real driver, how long
// each took, and whether one is stuck.
//
// It never gives a call up, which nobody can: a process that waits for a broken driver
// has to be ended from outside.
package watched
