// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Pod is what is kept of a pod that asks for GPUs and has not ended.
type Pod struct {
	// Namespace and Name are the pod's.
	Namespace, Name string
	// UID tells the pod from another of the same name.
	UID types.UID
	// Node is where it was bound to; empty while it was not.
	Node string
	// Controller is the owner that says to control it; empty for a bare pod.
	Controller Owner
	// Group is the value of Kueue's label for pods that are admitted together;
	// empty for most. Its author writes it.
	Group string

	// Queued is whether the pod waits in a queue of Kueue's: its scheduling gate is
	// there. Such a pod has no node.
	Queued bool
	// Running is whether the phase is Running. It stays so while the pod is being
	// deleted, until its containers have gone.
	Running bool
	// Deleting is whether the pod has a deletionTimestamp.
	Deleting bool
	// CreatedAt and StartedAt are in machine time, to the second. StartedAt is when
	// the first of the containers that never restarted began, else when the kubelet
	// took the pod; zero where neither is known.
	CreatedAt, StartedAt time.Time

	// Milli is how much of physical GPUs is charged for the pod: by the currency,
	// where admission wrote it; else what the pod asks for, at most. It is 0 where
	// neither can be read.
	Milli workload.Milli
	// Unreadable is whether the pod asks for GPUs in a way that cannot be read.
	Unreadable bool
	// Pool is the node pool for which the pod was admitted; empty for a pod that
	// admission has not seen.
	Pool string
	// WorkloadType is what the pod is labeled, by admission or by its author; empty
	// where nobody did.
	WorkloadType v1alpha1.WorkloadType
	// Project is the project for which the pod was admitted; empty where it was not.
	// Whose the pod is, its namespace says.
	Project string
	// CreatedBy is the user as whom the pod was made. For a controller's pod that is
	// the controller.
	CreatedBy string
	// MaxRuntime is the limit that the pod's author wrote; empty where nothing was
	// said or what was said cannot be read.
	MaxRuntime period.Duration
}

// Key is the pod's namespace and name.
func (p *Pod) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// EffectiveStart is when the pod began to run, as far as is known, in machine time.
func (p *Pod) EffectiveStart() time.Time {
	if p.StartedAt.IsZero() {
		return p.CreatedAt
	}
	return p.StartedAt
}

// Owner is an object that owns others, as they refer to it.
type Owner struct {
	// APIVersion is the owner's group and version: batch/v1.
	APIVersion string
	// Kind is the owner's kind: Job.
	Kind string
	// Name is the owner's name, in the namespace of what it owns or in none.
	Name string
	// UID tells the owner from another of the same name.
	UID types.UID
}

// Change is a pod before and after. Before is nil for a pod that is new here,
// After for one that has ended or gone.
type Change struct {
	Before, After *Pod
}

// Pod is the pod as it is now, or as it last was.
func (c Change) Pod() *Pod {
	if c.After != nil {
		return c.After
	}
	return c.Before
}
