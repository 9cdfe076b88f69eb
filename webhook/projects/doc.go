// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package projects judges Projects by what their schema cannot know.
//
// Enters: a Project that is made or changed, and by whom; its
// Department, the namespace it names, and the other Projects. Leaves: an answer
// that names every wrong field: a department that the writer does not
// administer, more than whoever only manages the project may change, a pool that is not there, more than the department has left,
// limits looser than the department's, a namespace that it may not have; and
// warnings of what is allowed but will be felt.
//
// It never repeats what the schema checks, and never adopts or makes anything;
// lifecycle decides again, by the same rules, before it acts.
package projects
