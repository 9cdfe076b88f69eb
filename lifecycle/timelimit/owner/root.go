// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// Root is a workload that nothing else controls, as far as can be told. Roots can
// be compared with ==; two of the same name and different UIDs are not the same.
type Root struct {
	schema.GroupVersionKind
	// Namespace is the pod's, always.
	Namespace string
	// Name is the root's.
	Name string
	// UID is the root's, as read from the server.
	UID types.UID
}

// Reference is the root as a WorkloadClock names it.
func (r Root) Reference() v1alpha1.WorkloadReference {
	version, kind := r.ToAPIVersionAndKind()
	return v1alpha1.WorkloadReference{APIVersion: version, Kind: kind, Name: r.Name}
}

// Outcome is why a walk ended where it did.
type Outcome string

// The endings. In all but the first there was more to see above the root, or
// seemed to be.
const (
	// OutcomeTop: nothing controls the root.
	OutcomeTop Outcome = "Top"
	// OutcomePodGroup: the root is Kueue's Workload of a group of pods.
	OutcomePodGroup Outcome = "Group"
	// OutcomeOwnerNotWorkload: the owner is no kind of workload, such as the node that is
	// named as the controller of a mirror pod, or a schedule.
	OutcomeOwnerNotWorkload Outcome = "OwnerIsNoWorkload"
	// OutcomeOwnerNotFound: the owner does not exist.
	OutcomeOwnerNotFound Outcome = "OwnerGone"
	// OutcomeOwnerReplaced: another object has the owner's name now.
	OutcomeOwnerReplaced Outcome = "OwnerMadeAnew"
	// OutcomeOwnerForbidden: lifecycle may not read the owner. To govern workloads of
	// that kind it needs the right to get them.
	OutcomeOwnerForbidden Outcome = "OwnerForbidden"
	// OutcomeOwnerKindUnknown: the server has no such kind.
	OutcomeOwnerKindUnknown Outcome = "OwnerKindUnknown"
	// OutcomeOwnerClusterScoped: the owner lies in no namespace.
	OutcomeOwnerClusterScoped Outcome = "OwnerInNoNamespace"
	// OutcomeMaxDepth: there is more above than a walk goes up.
	OutcomeMaxDepth Outcome = "TooDeep"
	// OutcomeCycle: the owners own each other.
	OutcomeCycle Outcome = "Cycle"
)

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// kueueWorkloadKind is Kueue's Workload. Which version is served the mapper knows.
var kueueWorkloadKind = schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}

// nonWorkloadKinds are kinds that may be named as controllers and are no workloads. The
// first are no workloads at all; the others are schedules: each of their runs is
// stopped for itself, and the next may still come.
var nonWorkloadKinds = map[schema.GroupKind]bool{
	{Kind: "Node"}:           true, // of mirror pods
	{Kind: "Namespace"}:      true,
	{Kind: "ConfigMap"}:      true,
	{Kind: "Secret"}:         true,
	{Kind: "Service"}:        true,
	{Kind: "ServiceAccount"}: true,

	{Group: "batch", Kind: "CronJob"}:                                  true,
	{Group: "argoproj.io", Kind: "CronWorkflow"}:                       true,
	{Group: "kubeflow.org", Kind: "ScheduledWorkflow"}:                 true,
	{Group: "ray.io", Kind: "RayCronJob"}:                              true,
	{Group: "sparkoperator.k8s.io", Kind: "ScheduledSparkApplication"}: true,
}

// isNonWorkloadKind is whether nothing of that kind can be a root.
func isNonWorkloadKind(kind schema.GroupKind) bool {
	return nonWorkloadKinds[kind] || kind.Group == v1alpha1.Group
}
