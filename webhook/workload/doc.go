// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload serves the admission webhooks for workloads in governed namespaces: the objects that create pods,
// such as Jobs, Deployments and the training operator's jobs.
//
// [Mutator] records the creator of a new workload in the annotation sluice.dev/created-by and applies the policies
// for Jobs. Kueue counts a Job, a JobSet or a RayCluster by its pod templates, before there are pods: if Kueue serves
// the template's node pool, Mutator applies the policies for pods to the templates as well.
//
// [Validator] evaluates the policies for pods on the pod templates, so that an author learns at once which pods would
// be denied, and warns of rollouts that could never finish.
//
// [AdoptionValidator] refuses that a controller takes over another user's pod or ReplicaSet.
//
// [ConnectionValidator] refuses connections to the pods of another user. [CreatorLabeler] and [PodCreatorValidator]
// keep a user's Services to that user's pods; the latter keeps pods from the volume claims, the pod groups and the nodes of others, too.
// Both validators find the creator with a [CreatorResolver].
//
// Except for that resolver the package never reads the cluster beyond the tenant's cache. It is not the gate, which is the pod's admission:
// if the tenant is unknown or the policies cannot be evaluated, it admits the workload with its creator recorded,
// except for a workload that Kueue counts by its templates.
package workload
