// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package currency writes on each node how many thousandths of GPUs it has, the
// one unit in which quotas count whole GPUs, MIG slices and fractions.
//
// Enters: Nodes, their GPUNodes and the NodePools. Leaves: the extended
// resource sluice.dev/gpu-milli, or sluice.dev/gpu-milli.<pool> where the
// pool's engine cannot tell pools apart, in each node's capacity and
// allocatable; again whenever it is missing or zeroed, as after a node's
// restart. No other component writes it.
//
// It never touches another resource, and never lowers what a node had because
// nobody can say at the moment what it has.
package currency
