// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Pod is a GPU pod that has not ended.
type Pod struct {
	Namespace, Name string
	// UID distinguishes pods that were created with the same name.
	UID types.UID
	// Node is empty until the pod is bound.
	Node string
	// Controller is the controlling owner; empty for a bare pod.
	Controller Owner
	// Group is the value of Kueue's pod group label, which the author writes; empty for
	// most pods.
	Group string
	// PodGroup is the name of the pod's group of KAI-Scheduler, which the scheduler's podgrouper
	// writes; empty for other pods.
	PodGroup string

	// Queued is true if the pod has Kueue's scheduling gate. Such a pod has no node.
	Queued bool
	// Admitted is true if Kueue admitted the pod: it holds quota from then on, bound or not. It is false
	// for pods of other schedulers.
	Admitted bool
	// Running is true if the pod is bound and any of its containers has started, an init
	// container included. It stays true while the pod is being deleted, until its containers
	// have ended.
	Running bool
	// Deleting is true if the pod has a deletionTimestamp.
	Deleting bool
	// GraceEndsAt is when the grace period of a pod that is being deleted ends, in machine
	// time. It is zero for other pods.
	GraceEndsAt time.Time
	// CreatedAt and StartedAt are in machine time, to the second. StartedAt is the start of
	// the first container that never restarted, else the time when the kubelet accepted the
	// pod. It is zero if both are unknown.
	CreatedAt, StartedAt time.Time
	// BoundAt is when the pod was bound to its node, in machine time, to the second. It is
	// zero if the pod is not bound.
	BoundAt time.Time

	// Milli is the charge of the pod in thousandths of GPUs: the GPU quota units that
	// admission wrote, else an upper bound of the request. It is 0 if neither can be parsed.
	Milli workload.Milli
	// QuotaResource is the GPU quota resource in which admission charged Milli, such as
	// sluice.dev/gpu-milli.dgx; empty for a pod without admission.
	QuotaResource corev1.ResourceName
	// NonPreemptible is true if admission charged the pod to its project's guarantee, too: it is
	// not preempted.
	NonPreemptible bool
	// Unreadable is true if the GPU request cannot be parsed.
	Unreadable bool
	// Pool is the node pool of the admission; empty for a pod without admission.
	Pool string
	// WorkloadType is the label's value, from admission or the author; it can be empty.
	WorkloadType v1alpha1.WorkloadType
	// Project is the project of the admission; empty for a pod without. The namespace
	// determines the project that the pod belongs to.
	Project string
	// CreatedBy is the user who created the pod. For the pod of a controller it is the
	// controller.
	CreatedBy string
	// MaxRuntime is the limit that the author requested; zero if there is none or it cannot
	// be parsed.
	MaxRuntime period.Duration
}

// EffectiveStart returns StartedAt, or CreatedAt if that is unknown.
func (p *Pod) EffectiveStart() time.Time {
	if p.StartedAt.IsZero() {
		return p.CreatedAt
	}
	return p.StartedAt
}

// IsBound reports whether the pod is bound to a node. It holds its GPUs from then on, whether
// its containers start or not.
func (p *Pod) IsBound() bool { return p.Node != "" }

// Owner is an owner reference.
type Owner struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

// Change is a pod before and after a change. Before is nil for a new pod, After for a pod
// that ended or was deleted.
type Change struct {
	Before, After *Pod
}

// Pod returns After, or Before if that is nil.
func (c Change) Pod() *Pod {
	if c.After != nil {
		return c.After
	}
	return c.Before
}
