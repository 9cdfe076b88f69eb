// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journal is what the agent knows after a crash: on disk, before each write to
// the driver, what is about to be done, and which instances are Sluice's own.
//
// Enters: a change that was begun on a GPU with the next call to the driver, and the
// register of that GPU's instances. Leaves: the same after any crash, or the plain
// statement that it cannot be known.
//
// It never guesses: a content that is damaged, of another version or of another node is
// set aside, and then nothing counts as Sluice's own. It never speaks to the driver.
package journal
