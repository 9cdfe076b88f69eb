// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extension answers Extensions of workloads' time as far as a department
// does so by itself, and tells people of the others.
//
// Enters: the Extensions that ask for more time, the clocks of their workloads, and
// the terms of the department. Leaves: the approval of those within the terms, the
// refusal of those whose workload is gone, and a Notice and an event where somebody
// has to decide, and again when it was decided. Package clocks gives the time.
//
// One is decided at a time, by what the API server has at that moment, and in the
// order in which they were asked for: a crash, or two who act at once, grant none
// twice. What was left to people once stays with them.
//
// It never decides for people, and never changes what was decided.
package extension
