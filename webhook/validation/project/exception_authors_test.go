// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

// projectWith returns a Project with annotations, and exceptions with these reasons unless they are empty.
func projectWith(annotations map[string]string, hold, exempt string) *v1alpha1.Project {
	p := &v1alpha1.Project{}
	p.Name, p.Annotations = "thesis", annotations
	if hold != "" {
		p.Spec.Hold = &v1alpha1.Exception{Reason: hold}
	}
	if exempt != "" {
		p.Spec.Exempt = &v1alpha1.Exception{Reason: exempt}
	}
	return p
}

// Invariant 11: what an object says about who set an exception is true, whatever its writer claims.
func TestExceptionAuthorsAreNotForged(t *testing.T) {
	const held, exempted = v1alpha1.HeldByAnnotation, v1alpha1.ExemptedByAnnotation
	type notes = map[string]string
	tests := map[string]struct {
		old, project *v1alpha1.Project
		want         notes
	}{
		"a new hold": {nil, projectWith(nil, "fire", ""), notes{held: "admin"}},
		"a new project with both, and claims": {
			nil, projectWith(notes{held: "other", exempted: "other", "note": "x"}, "fire", "course"),
			notes{held: "admin", exempted: "admin", "note": "x"},
		},
		"claims without an exception": {nil, projectWith(notes{held: "other", exempted: "other"}, "", ""), notes{}},
		"an unchanged hold keeps its author": {
			projectWith(notes{held: "first"}, "fire", ""), projectWith(notes{held: "forged"}, "fire", "course"),
			notes{held: "first", exempted: "admin"},
		},
		"an author that was removed": {projectWith(notes{held: "first"}, "fire", ""), projectWith(nil, "fire", ""), notes{held: "first"}},
		"another reason":             {projectWith(notes{held: "first"}, "fire", ""), projectWith(notes{held: "first"}, "flood", ""), notes{held: "admin"}},
		"the end of a hold":          {projectWith(notes{held: "first"}, "fire", ""), projectWith(notes{held: "first"}, "", ""), notes{}},
		"a hold from before": {
			projectWith(nil, "fire", ""), projectWith(notes{held: "forged"}, "fire", ""), notes{},
		},
		"nothing to do": {projectWith(nil, "", ""), projectWith(notes{"note": "x"}, "", ""), notes{"note": "x"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(tc.project)
			if err != nil {
				t.Fatal(err)
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
				UserInfo: authenticationv1.UserInfo{Username: "admin"},
			}}
			if tc.old != nil {
				request.Operation = admissionv1.Update
				if request.OldObject.Raw, err = json.Marshal(tc.old); err != nil {
					t.Fatal(err)
				}
			}
			response := ExceptionAuthors{}.Handle(t.Context(), request)
			if !response.Allowed {
				t.Fatalf("refused: %v", response.Result)
			}
			patched := raw
			if len(response.Patch) > 0 {
				patch, err := jsonpatch.DecodePatch(response.Patch)
				if err != nil {
					t.Fatal(err)
				}
				if patched, err = patch.Apply(raw); err != nil {
					t.Fatal(err)
				}
			}
			var got v1alpha1.Project
			if err := json.Unmarshal(patched, &got); err != nil {
				t.Fatal(err)
			}
			if got.Annotations == nil {
				got.Annotations = notes{}
			}
			if diff := cmp.Diff(tc.want, got.Annotations); diff != "" {
				t.Errorf("annotations differ (-want +got)\n%s", diff)
			}
			got.Annotations, tc.project.Annotations = nil, nil
			if diff := cmp.Diff(tc.project, &got); diff != "" {
				t.Errorf("the rest differs (-want +got)\n%s", diff)
			}
		})
	}
}
