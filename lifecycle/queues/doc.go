// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queues gives each Department and each NodePool what policies render for
// it in the engines of its pools: cohorts, flavors, queues.
//
// Enters: Departments, NodePools and Projects, as watched, and the policies in
// force. Leaves: the objects, cluster-wide and under the department's or the pool's
// own name, applied, kept and taken back; a finalizer where there is anything to
// take back; and the condition QueueApplied, which says what is there and what
// could not be had.
//
// It never writes for a project, whose objects are kept with its namespace, and
// never keeps a department or a pool from going for another reason than that its
// own objects are still there.
package queues
