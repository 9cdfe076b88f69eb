// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package projects judges Projects by what their schema cannot know.
//
// Enters: a Project that is made or changed, its Department, the namespace it
// names, and the other Projects. Leaves: an answer that names every wrong
// field: a department or pool that is not there, limits looser than the
// department's, a namespace that it may not have.
//
// It never repeats what the schema checks, and never adopts or makes anything;
// lifecycle decides again, by the same rules, before it acts.
package projects
