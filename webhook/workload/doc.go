// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workloads says on what makes pods who made it, does to a Job what
// policies want of Jobs, and writes what the pods of a queued workload will be given
// into its pod templates.
//
// Enters: the creation of a Job, a Deployment, a training operator's job in a
// governed namespace. Leaves: a patch with the annotation sluice.dev/created-by,
// and for a Job what the policies about Jobs want besides, with their warnings and
// denials. Kueue counts a Job, a JobSet or a RayCluster by its templates, before
// there are pods: where it serves the pool of a template, that becomes what its pod
// would.
//
// It never looks at an object again after its creation, and is not the gate: that
// is the pod. Where nobody can say whose a namespace is, or ask the policies, the
// object still comes in, with its maker's name; but not where it must be counted.
package workload
