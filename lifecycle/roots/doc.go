// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roots finds the workload that a pod belongs to: what a person made, what
// has the clock and what is stopped.
//
// Enters: a pod, as package gpupods keeps it, and the metadata of those above it,
// read live. Leaves: the pod's [Root], and why the walk ended there. The walk goes
// up by controller references alone; other owners own for the garbage collector
// and say nothing of who decides. So the launcher and the workers of an MPIJob
// meet at the job, the head and the workers of a Ray cluster at what made it, the
// executors of a Spark application at what made their driver. Pods without a
// controller that Kueue admitted as a group meet at the group's Workload.
//
// What is above a pod counts only while it is there: each owner is read and its
// UID compared. Where one is gone, was made anew under its name, may not be read,
// is of a kind that the server does not have, or lies in no namespace, the walk
// ends below it. So a root is always something that exists and can be stopped.
// A fault of the network or the server is none of these: it is an error, and says
// nothing of the root. Schedules (CronJobs and their like) are no roots, since
// each of their runs is a workload of its own.
//
// # What is relied upon
//
// Owner references and labels are their author's. A root therefore never says
// whose a pod is, what limits it or what it is charged: the namespace says that,
// and every root lies in its pod's namespace. What is left to gain is time:
//
//   - A pod that points at another's root would run on that clock: until it is
//     stopped with the other, or so that the other ends sooner. Only known
//     controllers may write a pod's controller reference (the admission policy
//     controller-references of package doors, in governed namespaces); and a pod
//     counts as one of a group only where Kueue's Workload names the pod's UID.
//   - A reference to what does not exist, to be without a clock or to have one that
//     nobody can stop, ends the walk at the pod itself, which can be stopped.
//   - A new root for a fresh clock is what anybody has who makes a workload anew:
//     that clocks are handed on by name and by template is for the clocks to see.
//   - A root that is stopped already is not stopped again by the pod's running:
//     whoever stops a root must see that its pods go, and take those that stay.
//
// It never writes, never trusts a name without its UID, and never keeps more than
// a bounded number of owners in memory.
package roots
