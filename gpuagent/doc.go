// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpuagent is the place of the agent that runs on each GPU node. It is
// not built yet.
//
// Enters: its node's GPUNode and the driver's answers. Leaves: the GPUs cut as
// the GPUNode asks, and its status: what there is, who uses it and how much.
//
// It never evicts a pod, never destroys an instance in use, and never writes a
// Node.
package gpuagent
