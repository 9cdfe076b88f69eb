// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package facts is what policies are told beside the object: input.project,
// input.department, input.nodePools and input.nodePool.
//
// Enters: a Project, its Department and the NodePools, as the API server has
// them; for what is promised, the projects of a department, or all departments.
// Leaves: what policies read of them, with everything resolved: the quotas in
// GPUs, the limits that hold for each type of workload, the price of each slice.
// The same objects always give the same facts, and every field is always there,
// so that a policy never meets an undefined value; but for a quota of CPU or
// memory, which is not there where there is none.
//
// It never reads the cluster, and never tells what changes from moment to
// moment, such as the present use.
package facts
