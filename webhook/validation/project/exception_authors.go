// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// ExceptionAuthors records in annotations who set the hold and the exemption of a Project, which the writer of the
// Project cannot forge. It patches nothing else.
type ExceptionAuthors struct{}

var _ admission.Handler = ExceptionAuthors{}

// Handle implements admission.Handler.
func (ExceptionAuthors) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	project, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("decode project: %w", err))
	}
	old, err := evaluation.DecodeObject(req.OldObject.Raw)
	if err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("decode old project: %w", err))
	}
	// The schema refuses malformed exceptions, after this webhook: their form does not matter here.
	spec, oldSpec := schema.AsMap(project["spec"]), schema.AsMap(old["spec"])
	metadata := maps.Clone(schema.AsMap(project["metadata"]))
	before, authors := schema.AsMap(metadata["annotations"]), schema.AsMap(schema.AsMap(old["metadata"])["annotations"])
	annotations := maps.Clone(before)
	if annotations == nil {
		annotations = map[string]any{}
	}
	for annotation, exception := range map[string]string{v1alpha1.HeldByAnnotation: "hold", v1alpha1.ExemptedByAnnotation: "exempt"} {
		delete(annotations, annotation)
		var author any = req.UserInfo.Username
		if reflect.DeepEqual(spec[exception], oldSpec[exception]) {
			author = authors[annotation]
		}
		if spec[exception] != nil && author != nil {
			annotations[annotation] = author
		}
	}
	response := admission.Allowed("")
	if reflect.DeepEqual(annotations, before) || len(annotations)+len(before) == 0 {
		return response
	}
	after := maps.Clone(project)
	metadata["annotations"], after["metadata"] = annotations, metadata
	if err := evaluation.SetPatch(&response, project, after); err != nil {
		return evaluation.ErrorResponse(err)
	}
	return response
}
