// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package partition cuts a node's GPUs to what is asked for, and is the only place
// from which instances are made and destroyed.
//
// Enters: the layouts that are wanted, who has what, and the driver's answers.
// Leaves: GPUs cut so, or as they were before, and an [Outcome] that says which and
// why. In between every write to the driver is announced in package journal, so
// that a start after a crash completes or undoes what was begun.
//
// The decision (decide.go, undo.go) is pure. It never destroys an instance that is in
// use or that it cannot prove to be its own, never forces the driver, never begins a
// change of a GPU that it sees it cannot finish, and never writes to a GPU that does
// not answer.
package partition
