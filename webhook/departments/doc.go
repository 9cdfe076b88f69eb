// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package departments judges Departments by what their schema cannot know.
//
// Enters: a Department that is made, changed or deleted. Leaves: an answer that
// names every wrong field: a time zone that does not exist, a digest that never
// comes, projects that would be left without a department.
//
// It never repeats what the schema checks, and never reads more than the names
// of the department's projects.
package departments
