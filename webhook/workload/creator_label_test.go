// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/workload"
)

// Services select by the creator's label, and the creator's pods have it.
func TestCreatorLabeler(t *testing.T) {
	label := `"sluice.dev/creator":"` + v1alpha1.CreatorLabel(anna) + `"`
	for name, tc := range map[string]struct {
		group, resource, before, after string
	}{
		"pod":               {"", "pods", `{"metadata":{"labels":{"app":"w"}}}`, `{"metadata":{"labels":{"app":"w",` + label + `}}}`},
		"pod of another":    {"", "pods", `{"metadata":{"labels":{"sluice.dev/creator":"bob"}}}`, `{"metadata":{"labels":{` + label + `}}}`},
		"without metadata":  {"", "pods", `{}`, `{"metadata":{"labels":{` + label + `}}}`},
		"Deployment":        {"apps", "deployments", `{"spec":{"template":{}}}`, `{"spec":{"template":{"metadata":{"labels":{` + label + `}}}}}`},
		"Job":               {"batch", "jobs", `{"spec":{"template":{"metadata":{}}}}`, `{"spec":{"template":{"metadata":{"labels":{` + label + `}}}}}`},
		"CronJob":           {"batch", "cronjobs", `{"spec":{}}`, `{"spec":{"jobTemplate":{"spec":{"template":{"metadata":{"labels":{` + label + `}}}}}}}`},
		"Service":           {"", "services", `{"spec":{"selector":{"app":"w"}}}`, `{"spec":{"selector":{"app":"w",` + label + `}}}`},
		"of another":        {"", "services", `{"spec":{"selector":{"sluice.dev/creator":"bob"}}}`, `{"spec":{"selector":{` + label + `}}}`},
		"no selector":       {"", "services", `{"spec":{"type":"ExternalName"}}`, `{"spec":{"type":"ExternalName"}}`},
		"empty selector":    {"", "services", `{"spec":{"selector":{}}}`, `{"spec":{"selector":{}}}`},
		"Knative's Service": {"serving.knative.dev", "services", `{"spec":{"selector":{"a":"b"}}}`, `{"spec":{"selector":{"a":"b"}}}`},
		"another kind":      {"", "secrets", `{"data":{}}`, `{"data":{}}`},
		"invalid labels":    {"", "pods", `{"metadata":{"labels":"x"}}`, `{"metadata":{"labels":"x"}}`},
		"invalid spec":      {"", "services", `{"spec":[]}`, `{"spec":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			response := workload.CreatorLabeler{}.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Group: tc.group, Version: "v1", Resource: tc.resource},
				UserInfo: authenticationv1.UserInfo{Username: anna}, Object: runtime.RawExtension{Raw: []byte(tc.before)},
			}})
			if !response.Allowed {
				t.Fatalf("%+v", response.Result)
			}
			after := []byte(tc.before)
			if len(response.Patch) > 0 {
				patch, err := jsonpatch.DecodePatch(response.Patch)
				if err != nil {
					t.Fatal(err)
				}
				if after, err = patch.Apply(after); err != nil {
					t.Fatal(err)
				}
			}
			if !jsonpatch.Equal(after, []byte(tc.after)) {
				t.Errorf("%s, want %s", after, tc.after)
			}
		})
	}
}
