// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory tells what GPUs a node has and to which pool it belongs.
//
// Enters: a Node, its GPUNode where an agent has written one, and all
// NodePools. Leaves: the number and kinds of the node's physical GPUs, or why
// they cannot be told; and the one pool that has the node, or all that contend
// for it.
//
// It never writes, reads nothing but the GPUNode it is asked for, and never
// guesses a number.
package inventory
