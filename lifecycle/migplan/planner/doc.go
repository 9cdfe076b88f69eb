// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planner plans the MIG layout of the GPUs in pools with sharing: MIG, and
// coordinates each change of a node with the agent.
//
// It reads the unschedulable pods that request MIG instances, the Nodes of these
// pools, and the GPUNode status that the agents report. It writes the layout into
// GPUNode.spec, a taint on a node while that node is repartitioned, the condition
// Planned on each pool, and events on pods, nodes and GPUNodes.
//
// All planning is in [decide], a pure function from a snapshot to actions; it uses
// no client and no clock. The seven steps of a node change are in node_change.go.
// The objects hold the progress of a change, so a restarted planner continues it:
// the taint's value is the generation of the GPUNode at tainting time, and a later
// generation means that the spec is written. Every change ends with removing the
// taint.
//
// For a pod with a guarantee that finds no room, package preemption chooses the pods
// that give way. The planner reserves the place in an annotation of the GPUNode,
// announces the evictions (package eviction evicts), and nominates the node for the pod.
//
// The planner never destroys an instance that a pod holds, may hold or needs. It
// never stops a pod itself, never writes a GPUNode's status, and writes no field of a
// Node but its own taint and these labels, and of a pod only the nominated node.
package planner
