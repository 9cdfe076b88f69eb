// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package weekly records, for the contacts of each department, what its week was.
//
// Enters: Departments, and what their Projects, WorkloadClocks, Extensions and
// UsageRecords say.
// Leaves: one Notice of kind WeeklySummary a week and contact, due at the first digest
// of the week, or at eight on Monday where the department has no digest.
//
// It never looks further back than the week that ended: weeks in which lifecycle was
// away are not made up for.
package weekly
