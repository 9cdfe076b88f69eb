// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kaigroup knows what of KAI-Scheduler's PodGroups is decided by Sluice: in
// whose queue a group is, on which nodes it may be, and what it is worth.
//
// Enters: a project's node pools, as policies see them, and a PodGroup as the API
// server has it. Leaves: the places where its groups may be, and the PodGroup with
// one of them. The queues have the names that policy schedulers.kai renders.
//
// It never reads or writes the cluster, and changes nothing else of a PodGroup.
package kaigroup
