// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// ExceptionAuthors records in annotations who set the hold and the exemption of a Project, which the writer of the
// Project cannot forge. It patches nothing else.
type ExceptionAuthors struct{}

var _ admission.Handler = ExceptionAuthors{}

// exceptionHolder is the part of a Project that the annotations follow from.
type exceptionHolder struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Hold   *v1alpha1.Exception `json:"hold"`
		Exempt *v1alpha1.Exception `json:"exempt"`
	} `json:"spec"`
}

// Handle implements admission.Handler.
func (ExceptionAuthors) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	var project, old exceptionHolder
	if err := json.Unmarshal(req.Object.Raw, &project); err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("decode project: %w", err))
	}
	if req.Operation == admissionv1.Update {
		if err := json.Unmarshal(req.OldObject.Raw, &old); err != nil {
			return evaluation.ErrorResponse(fmt.Errorf("decode old project: %w", err))
		}
	}
	annotations := maps.Clone(project.Metadata.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, e := range []struct {
		annotation    string
		exception, of *v1alpha1.Exception
	}{
		{v1alpha1.HeldByAnnotation, project.Spec.Hold, old.Spec.Hold},
		{v1alpha1.ExemptedByAnnotation, project.Spec.Exempt, old.Spec.Exempt},
	} {
		author := req.UserInfo.Username
		if equality.Semantic.DeepEqual(e.exception, e.of) {
			author = old.Metadata.Annotations[e.annotation]
		}
		if delete(annotations, e.annotation); e.exception != nil && author != "" {
			annotations[e.annotation] = author
		}
	}
	response := admission.Allowed("")
	if maps.Equal(annotations, project.Metadata.Annotations) {
		return response
	}
	before, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	after, metadata := maps.Clone(before), maps.Clone(schema.AsMap(before["metadata"]))
	values := make(map[string]any, len(annotations))
	for key, value := range annotations {
		values[key] = value
	}
	metadata["annotations"], after["metadata"] = values, metadata
	if err := evaluation.SetPatch(&response, before, after); err != nil {
		return evaluation.ErrorResponse(err)
	}
	return response
}
