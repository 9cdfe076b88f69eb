// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpuagent is the agent that runs on each GPU node.
//
// Enters: its node's GPUNode and pods, the kubelet's word on who has which device, and
// the driver's answers. Leaves: the GPUs cut as the GPUNode asks, the device plugin
// told of it, the GPUNode's status, metrics, and on a socket of the node a picture of
// what there is.
//
// It never evicts a pod, never destroys an instance in use, never writes a Node, and
// never touches a GPU that somebody else cuts.
package agent
