// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promises adds up what a department has promised its projects.
//
// Enters: a Department and its Projects, as the API server has them. Leaves: for
// each node pool of the department, and for CPU and memory where it has a quota
// of them, what it has, what its projects were promised, and who has how much.
//
// It never reads the cluster, and never refuses anything: admission and the
// department's status come to their own conclusions from the same sums.
package promises
