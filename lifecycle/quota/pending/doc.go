// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package waiting shows what of a project's GPU quota is in use and what waits for
// it, says why, and wakes what waits outside when there is room.
//
// A pod that does not fit into a ResourceQuota is refused, and exists nowhere:
// its controller tries again, a Job's within a minute, a ReplicaSet's after up to
// 17 minutes. Where Kueue has the turn, a Job is suspended and a pod gated until it
// is let in. Enters: the events in which controllers say so, the quotas that
// lifecycle rendered, the GPU pods of package gpupods, of each refused workload the
// object itself, read when it is looked at, and Kueue's Workloads, watched as soon
// as they are served and kept in a small form. Leaves: in the status of its Project
// what is allocated, beyond the guarantee and pending, in all and by node pool, and
// the condition Pending; events on workloads in people's words, one for each reason:
// for what they wait, and for whom they were ended; when there is room, an
// annotation on the object that makes its controller try at once, the oldest
// first; and how long pods waited, for Prometheus.
//
// It never makes, changes or ends a pod, keeps no queue and reserves nothing: who
// is woken may still find that somebody else was quicker, and waits on. It never
// writes what is Kueue's.
package pending
