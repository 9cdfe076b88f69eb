// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restarts

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/workload"
	"sluice.dev/api/workload/kinds"
)

var pod = schema.GroupKind{Kind: "Pod"}

// asksForGPUs tells whether an object that is made may get GPUs. What runs the same
// without one is nobody's concern. Kinds that keep their pods in forms of their own
// may always; so may what cannot be read, of which the pods will be refused.
func asksForGPUs(kind schema.GroupKind, object *unstructured.Unstructured) bool {
	templates := kinds.Templates(kind, object.Object)
	if len(templates) == 0 {
		return true
	}
	for _, t := range templates {
		var template corev1.PodTemplateSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Body, &template); err != nil {
			return true
		}
		request, err := workload.Parse(&template)
		if err != nil || request.Form != workload.FormNone || len(request.Claims) > 0 {
			return true
		}
	}
	return false
}
