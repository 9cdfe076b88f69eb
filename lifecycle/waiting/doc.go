// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package waiting shows what waits outside for a project's GPU quota, and wakes
// it when there is room.
//
// A pod that does not fit into a ResourceQuota is refused, and exists nowhere:
// its controller tries again, a Job's within a minute, a ReplicaSet's after up to
// 17 minutes. Enters: the events in which controllers say so, the quotas that
// lifecycle rendered, and of each such workload the object itself, read when it
// is looked at. Leaves: the condition Waiting and the pending GPUs in the status
// of its Project, an event on the workload in people's words, and, when there is
// room, an annotation on the object that makes its controller try at once, the
// oldest first.
//
// It never makes, changes or ends a pod, keeps no queue and reserves nothing: who
// is woken may still find that somebody else was quicker, and waits on.
package waiting
