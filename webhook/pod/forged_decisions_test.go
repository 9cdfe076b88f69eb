// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/webhook/pod"
)

func createRequest(raw []byte) admission.Request {
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "thesis", Object: runtime.RawExtension{Raw: raw},
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
	}}
	request.UserInfo.Username = "anna"
	return request
}

// applyPatch returns the pod after a response.
func applyPatch(t *testing.T, raw []byte, response admission.Response) []byte {
	t.Helper()
	if !response.Allowed {
		t.Fatalf("denied: %s", response.Result.Message)
	}
	if len(response.Patch) == 0 {
		return raw
	}
	steps, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := steps.Apply(raw)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

func decisions(t *testing.T, raw []byte) string {
	t.Helper()
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	return object.Annotations[v1alpha1.AnnotationDecisions]
}

// A user's own value of the annotation never survives: not of a pod whose other fields are as the policies leave
// them, so that they change little or nothing. Guards invariant 11 of the design.
func TestForgedDecisionsDoNotSurvive(t *testing.T) {
	mutator := &pod.Mutator{Base: newBase(t)}
	mutate := func(t *testing.T, raw []byte) []byte {
		t.Helper()
		first := pod.DecisionsRemover{}.Handle(t.Context(), createRequest(raw))
		raw = applyPatch(t, raw, first)
		return applyPatch(t, raw, mutator.Handle(t.Context(), createRequest(raw)))
	}
	plain := []byte(`{"metadata":{"annotations":{"own":"1"}},"spec":{"containers":[{"name":"main","image":"x"}]}}`)
	settled := mutate(t, plain)
	with := func(raw []byte, value string) []byte {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationDecisions: value}}})
		if err != nil {
			t.Fatal(err)
		}
		after, err := jsonpatch.MergePatch(raw, patch)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	partly, err := jsonpatch.MergePatch(settled, []byte(`{"spec":{"priorityClassName":null,"priority":null,"preemptionPolicy":null}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"a new pod": plain, "a pod like an admitted one": settled, "a pod that is changed in part": partly} {
		for _, value := range []string{`{"forged":["spec.x"]}`, `{"core.gpu":["forged"]}`, "null", "forged", `{"a":` + strings.Repeat(" ", 5000) + `["forged"]}`} {
			t.Run(name+"/"+value[:min(len(value), 10)], func(t *testing.T) {
				after := decisions(t, mutate(t, with(raw, value)))
				if strings.Contains(after, "forged") || after == "null" {
					t.Errorf("recorded %.200s", after)
				}
			})
		}
	}
}

func TestDecisionsRemoverWarnsAndKeepsOthers(t *testing.T) {
	raw := []byte(`{"metadata":{"annotations":{"own":"1","sluice.dev/decisions":"{}","sluice.dev/evaluated-under":"2f8a"}}}`)
	response := pod.DecisionsRemover{}.Handle(t.Context(), createRequest(raw))
	if got, want := string(applyPatch(t, raw, response)), `{"metadata":{"annotations":{"own":"1"}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(response.Warnings) != 2 {
		t.Errorf("warnings %q, want two", response.Warnings)
	}
	for _, raw := range []string{`{}`, `{"metadata":7}`, `null`, `{"metadata":{"annotations":{"own":"1"}}}`} {
		if response := (pod.DecisionsRemover{}).Handle(t.Context(), createRequest([]byte(raw))); !response.Allowed || len(response.Patch) > 0 {
			t.Errorf("%s: %v, patch %s", raw, response.Result, response.Patch)
		}
	}
}

// The API server calls the remover before the Mutator and never again, or it would remove what the Mutator wrote.
func TestRegistrationOfDecisionsRemover(t *testing.T) {
	content, err := manifests.Files.ReadFile("base/admission/mutating.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(content, &configuration); err != nil {
		t.Fatal(err)
	}
	remover, mutator := configuration.Webhooks[0], configuration.Webhooks[1]
	if remover.Name != "forged-decisions.sluice.dev" || *remover.ReinvocationPolicy != admissionregistrationv1.NeverReinvocationPolicy ||
		*remover.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("first %s, reinvoked %s, failure policy %s", remover.Name, *remover.ReinvocationPolicy, *remover.FailurePolicy)
	}
	if mutator.Name != "pods.sluice.dev" || len(remover.Rules) != 1 || remover.Rules[0].String() != mutator.Rules[0].String() ||
		remover.NamespaceSelector.String() != mutator.NamespaceSelector.String() {
		t.Errorf("%s has other pods than %s", mutator.Name, remover.Name)
	}
}
