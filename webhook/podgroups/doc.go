// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroups says in whose queue KAI-Scheduler's groups of pods are, and
// what they are worth.
//
// Enters: the creation or a change of a PodGroup in a governed namespace, by
// whomever: the scheduler takes a group's queue and class from labels that the
// owner of its pods was given by anybody. Leaves: a patch by which the group is in a
// queue of the namespace's project, on that queue's nodes, and of one of Sluice's
// priority classes, with its preemptibility said outright.
//
// It never refuses what the scheduler writes: a new group of which nobody can say
// whose it is fails, and is tried again; a change is let through. People's own
// groups and changes are refused by the API server itself.
package podgroups
