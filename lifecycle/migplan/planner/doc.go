// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planner decides how GPUs are cut into MIG instances, and leads a node
// through the change.
//
// Enters: the pods that wait for a MIG instance and that no scheduler can place; the
// node pools that are cut, with their Nodes and what the agents report in the
// GPUNodes' status; and, just before a node is changed, its pods, read from the API
// server itself. Leaves: the layout of each GPU in the GPUNodes' spec, a taint on a
// node for as long as it is changed, the condition Planned on each pool, and events
// on the pods that wait and the nodes that change.
//
// A change of a node has seven steps: the node is tainted; nothing has been bound to
// it for a while; its pods are counted; the spec is written; the agent carries it out
// and reports; the node's allocatable agrees; the taint is taken off. Where a node
// is in this stands in the objects: the taint's value is the generation of the
// GPUNode that it was made for, so that a later generation means that the spec is
// written. Whoever starts anew goes on from there, and a taint always goes in the end.
//
// All thinking is in [decide], from a snapshot to actions, without a client or a
// clock.
//
// It never touches an instance that anybody has, may have, or needs; never ends a pod;
// never writes a GPUNode's status; and writes nothing of a Node but this taint.
package planner
