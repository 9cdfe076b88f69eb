// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nextpool looks after KAI-Scheduler's groups of pods: where one node pool
// has no room for a group, the next is tried that its pods may use.
//
// Enters: PodGroups, as watched once their kind is there, the project of their
// namespace with its node pools, and a group's pods, read when they are needed.
// Leaves: the group and its pods under another of the project's queues and node
// pools, after the last the first again; and a group that says of itself that it
// cannot be preempted, as one of its pods is that can.
//
// It never moves a group of which a pod has a node, moves none again within a
// minute, never chooses a pool that the pods were not admitted to, and leaves groups
// to kai-resource-management where that has the namespace.
package nextpool
