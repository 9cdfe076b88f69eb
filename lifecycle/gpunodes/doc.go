// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpunodes makes a GPUNode for each node of a pool that has GPUs.
//
// Enters: Nodes and NodePools. Leaves: for each node of exactly one pool that has
// NVIDIA GPUs, or is labelled so, a GPUNode of its name that the Node owns and that
// names the pool. It goes when the node has no pool any more, or two; and with the
// Node, whose successor under the same name gets a new one.
//
// It never writes how GPUs are cut, never writes a status, and never takes away a
// GPUNode that somebody else made.
package gpunodes
