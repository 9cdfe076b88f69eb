// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// Root is a root workload. Roots are comparable with ==.
type Root struct {
	schema.GroupVersionKind
	// Namespace is the namespace of its pods.
	Namespace string
	Name      string
	// UID distinguishes roots that were created with the same name.
	UID types.UID
	// CronJob is the name of the CronJob that created a Job; empty for other roots.
	CronJob string
}

// Reference returns the root as a WorkloadClock refers to it.
func (r Root) Reference() v1alpha1.WorkloadReference {
	version, kind := r.ToAPIVersionAndKind()
	return v1alpha1.WorkloadReference{APIVersion: version, Kind: kind, Name: r.Name}
}

// Outcome is why a walk ended at a root.
type Outcome string

// The outcomes. After all but the first two the root names an owner that is not followed.
const (
	// OutcomeTop: nothing controls the root.
	OutcomeTop Outcome = "Top"
	// OutcomePodGroup: the root is the Kueue Workload of a pod group.
	OutcomePodGroup Outcome = "PodGroup"
	// OutcomeOwnerNotWorkload: the owner's kind is no workload or cannot be stopped, such as a
	// schedule, or the Node that controls a mirror pod.
	OutcomeOwnerNotWorkload Outcome = "OwnerNotWorkload"
	// OutcomeOwnerNotFound: the owner does not exist.
	OutcomeOwnerNotFound Outcome = "OwnerNotFound"
	// OutcomeOwnerReplaced: another object has the owner's name now.
	OutcomeOwnerReplaced Outcome = "OwnerReplaced"
	// OutcomeOwnerForbidden: lifecycle must not read the owner. To govern workloads of that
	// kind it needs the permission to get them.
	OutcomeOwnerForbidden Outcome = "OwnerForbidden"
	// OutcomeOwnerKindUnknown: the server does not serve the kind.
	OutcomeOwnerKindUnknown Outcome = "OwnerKindUnknown"
	// OutcomeOwnerClusterScoped: the owner has no namespace.
	OutcomeOwnerClusterScoped Outcome = "OwnerClusterScoped"
	// OutcomeOwnerUnreadable: the server keeps answering with an error when the owner is read.
	OutcomeOwnerUnreadable Outcome = "OwnerUnreadable"
	// OutcomeOwnerImplausible: no controller of the owner's kind controls such an object.
	OutcomeOwnerImplausible Outcome = "OwnerImplausible"
	// OutcomeMaxDepth: the chain of owners is longer than the walk.
	OutcomeMaxDepth Outcome = "MaxDepth"
	// OutcomeCycle: the owners own each other.
	OutcomeCycle Outcome = "Cycle"
)

// cronJobKind creates a Job for each run.
var (
	cronJobKind = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	jobKind     = schema.GroupKind{Group: "batch", Kind: "Job"}
)

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// kueueWorkloadKind is Kueue's Workload. The RESTMapper knows the served version.
var kueueWorkloadKind = schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}

// schedules are kinds whose runs are workloads and are stopped one by one.
var schedules = map[schema.GroupKind]bool{
	cronJobKind: true,
	{Group: "argoproj.io", Kind: "CronWorkflow"}:                       true,
	{Group: "kubeflow.org", Kind: "ScheduledWorkflow"}:                 true,
	{Group: "ray.io", Kind: "RayCronJob"}:                              true,
	{Group: "sparkoperator.k8s.io", Kind: "ScheduledSparkApplication"}: true,
}

// mayBeRoot reports whether objects of the kind can be roots, as far as its name says.
func mayBeRoot(kind schema.GroupKind) bool {
	_, known := workloadkind.Lookup(kind)
	return !schedules[kind] && (known || workloadkind.IsStoppable(kind))
}
