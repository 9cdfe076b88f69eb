// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package roots

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// groupKind is Kueue's Workload. Which version is served the mapper knows.
var groupKind = schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}

// neverRoots are kinds that may be named as controllers and are no workloads. The
// first are no workloads at all; the others are schedules: each of their runs is
// stopped for itself, and the next may still come.
var neverRoots = map[schema.GroupKind]bool{
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

// neverRoot is whether nothing of that kind can be a root.
func neverRoot(kind schema.GroupKind) bool {
	return neverRoots[kind] || kind.Group == v1alpha1.Group
}
