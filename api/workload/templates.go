// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/workloadkind"
)

// MayRequestGPUs reports whether the pods of an object can request GPUs, by its pod templates. It returns true for a kind
// without known templates, for an invalid template, whose pods are denied, and for resources that a NodePool may name as
// its GPUs.
func MayRequestGPUs(kind schema.GroupKind, object map[string]any) bool {
	templates := workloadkind.Templates(kind, object)
	if len(templates) == 0 {
		return true
	}
	for _, t := range templates {
		var template corev1.PodTemplateSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Body, &template); err != nil {
			return true
		}
		request, err := Parse(&template)
		if err != nil || request.Form != FormNone || len(request.Claims) > 0 || len(request.OtherResources) > 0 {
			return true
		}
	}
	return false
}
