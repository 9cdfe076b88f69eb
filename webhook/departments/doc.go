// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package departments judges Departments by what their schema cannot know.
//
// Enters: a Department that is made, changed or deleted, and by whom; its
// projects, the other Departments and the NodePools. Leaves: an answer that
// names every wrong field: what the writer may not change, less than the
// department's projects were promised, a time zone that does not exist, a digest
// that never comes, projects that would be left without a department; and
// warnings of what is allowed but will be felt.
//
// It never repeats what the schema checks.
package departments
