// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodepool tells people what their node pools really are.
//
// Enters: NodePools, Nodes and GPUNodes, the policies in force, and what those
// require of the cluster. Leaves: each NodePool's status, which has its nodes, GPUs
// and boards, the settings of its engine that policies want to know, and conditions
// that say what is wrong and what to do.
//
// It never writes anything but that status.
package nodepool
