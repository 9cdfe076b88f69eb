// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package picture draws a node's GPUs for a terminal: their slices, who sits where, and
// which processes run.
//
// Enters: a [Node], which is also what the agent tells on its socket. Leaves: lines of
// at most 80 columns, with colours where they are wanted.
//
// It never asks anybody anything, and never writes a character that a terminal would
// act upon but its own colours.
package picture
