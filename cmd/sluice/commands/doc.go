// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command is the tree of sluice's commands.
//
// Enters: arguments and flags. Leaves: the call of the package that does the
// work, and its outcome on the terminal or, with --output json, for a machine.
// It never does the work itself.
package commands
