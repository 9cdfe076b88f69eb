// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package department tells people what their departments have.
//
// Enters: Departments, Projects and NodePools. Leaves: each Department's
// status: how many projects it has, what it may have of GPUs and what its
// projects use and wait for, and whether the node pools that it names are there.
//
// It never writes anything but that status.
package department
