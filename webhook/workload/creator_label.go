// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// CreatorLabeler sets the label of the creator on new pods and pod templates that have no controller, and in the selectors
// of Services of users who change only own objects, so that these select only pods of their creator. On pods it is a
// convenience: [PodCreatorValidator] checks their label.
type CreatorLabeler struct{}

var _ admission.Handler = CreatorLabeler{}

// labeledPaths are the paths of the labels of pods in the templates of workloads.
var labeledPaths = map[string][]string{
	"pods":                   {"metadata", "labels"},
	"cronjobs":               {"spec", "jobTemplate", "spec", "template", "metadata", "labels"},
	"deployments":            {"spec", "template", "metadata", "labels"},
	"jobs":                   {"spec", "template", "metadata", "labels"},
	"replicasets":            {"spec", "template", "metadata", "labels"},
	"replicationcontrollers": {"spec", "template", "metadata", "labels"},
	"statefulsets":           {"spec", "template", "metadata", "labels"},
}

// Handle implements admission.Handler. A Service without a selector selects no pods and stays as it is. So does an
// object with an invalid field on the path, which the API server refuses.
func (CreatorLabeler) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" {
		return admission.Allowed("")
	}
	object, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	path := labeledPaths[req.Resource.Resource]
	if req.Resource.Group == corev1.GroupName && req.Resource.Resource == "services" {
		path = []string{"spec", "selector"}
		if selector, _ := lookupPath(object, path); len(mergeschema.AsMap(selector)) == 0 {
			return admission.Allowed("")
		}
	}
	if object == nil || path == nil {
		return admission.Allowed("")
	}
	response := admission.Allowed("")
	changed, ok := copyWithValue(object, append(path[:len(path):len(path)], v1alpha1.LabelCreator), v1alpha1.CreatorLabel(req.UserInfo.Username))
	if !ok {
		return response
	}
	if err := evaluation.SetPatch(&response, object, changed); err != nil {
		return evaluation.ErrorResponse(err)
	}
	return response
}
