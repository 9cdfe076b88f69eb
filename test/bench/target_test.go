// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/frameworks/constraint/pkg/core/constraints"
	"github.com/open-policy-agent/frameworks/constraint/pkg/handler"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// plainTarget describes admission requests to Gatekeeper's client like Gatekeeper's own
// target, but matches by kind only. Gatekeeper's own decodes the object again for each
// constraint that matches.
type plainTarget struct{}

var _ handler.TargetHandler = plainTarget{}

func (plainTarget) GetName() string { return target.Name }

func (plainTarget) ProcessData(any) (handle bool, key []string, inventory any, err error) {
	return false, nil, nil, nil
}

func (plainTarget) HandleReview(object any) (handle bool, review any, err error) {
	request, ok := object.(*admissionv1.AdmissionRequest)
	if !ok {
		return false, nil, fmt.Errorf("a review must be an *AdmissionRequest, not %T", object)
	}
	return true, reviewed{request}, nil
}

func (plainTarget) ValidateConstraint(*unstructured.Unstructured) error { return nil }

func (plainTarget) MatchSchema() apiextensions.JSONSchemaProps {
	return apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
}

func (plainTarget) ToMatcher(constraint *unstructured.Unstructured) (constraints.Matcher, error) {
	entries, _, err := unstructured.NestedSlice(constraint.Object, "spec", "match", "kinds")
	if err != nil {
		return nil, err
	}
	var all kindMatcher
	for _, entry := range entries {
		kinds, _, err := unstructured.NestedStringSlice(entry.(object), "kinds")
		if err != nil {
			return nil, err
		}
		all = append(all, kinds...)
	}
	return all, nil
}

// reviewed is the request in the form of the client and the driver.
type reviewed struct{ *admissionv1.AdmissionRequest }

// GetAdmissionRequest gives the client the operation.
func (r reviewed) GetAdmissionRequest() *admissionv1.AdmissionRequest { return r.AdmissionRequest }

// kindMatcher matches objects of these kinds.
type kindMatcher []string

func (m kindMatcher) Match(review any) (bool, error) {
	r, ok := review.(reviewed)
	if !ok {
		return false, fmt.Errorf("a review must be a reviewed, not %T", review)
	}
	return slices.Contains(m, r.Kind.Kind), nil
}
