// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package show is how sluice's commands put things before a person or a machine.
//
// Enters: values, names that anybody may have chosen, lengths and instants of
// time. Leaves: tables, JSON and words on the terminal.
//
// It never writes a character that a terminal would act upon, whoever chose the
// name that has it, and never asks what time it is.
package show
