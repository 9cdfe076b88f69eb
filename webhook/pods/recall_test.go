// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/pods"
)

func asks(t *testing.T, number, request int, user string) admission.Request {
	t.Helper()
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(review(t, number, request), &decoded); err != nil {
		t.Fatal(err)
	}
	decoded.Request.UserInfo.Username = user
	return admission.Request{AdmissionRequest: *decoded.Request}
}

// Invariant: the same pod, project, policies and time give the same patch, byte
// for byte, whether it is remembered or not.
func TestRememberedAnswersAreTheAnswersThatWouldBeGiven(t *testing.T) {
	seen := 0
	rules, err := engine.New(engine.Options{Libraries: policies.Libraries(), Observe: func(engine.Evaluation) { seen++ }})
	if err != nil {
		t.Fatal(err)
	}
	rules.Update(policies.BuiltIn())
	desk := newDesk(t)
	desk.Judge.Engine = rules
	mutator := &pods.Mutator{Desk: desk}
	answer := func(number, request int, user string) (string, bool) {
		before := seen
		response := mutator.Handle(t.Context(), asks(t, number, request, user))
		if !response.Allowed {
			t.Fatal(response.Result.Message)
		}
		return string(response.Patch), seen > before
	}
	first, judged := answer(1, 1, "anna")
	if !judged || !strings.Contains(first, `created-by","value":"anna"`) {
		t.Fatalf("judged %v: %s", judged, first)
	}
	if again, judged := answer(1, 2, "anna"); judged || again != first {
		t.Errorf("the same pod a second later: judged %v, %s", judged, again)
	}
	if other, judged := answer(1, 1, "ben"); !judged || !strings.Contains(other, `created-by","value":"ben"`) {
		t.Errorf("the same pod of another user: judged %v, %s", judged, other)
	}
	if _, judged := answer(2, 1, "anna"); !judged {
		t.Error("another pod was not judged")
	}
	team := engine.Source{Name: "team", Rego: "package team\noverrides := {\"metadata\": {\"labels\": {\"team\": \"vision\"}}}"}
	rules.Update(append(policies.BuiltIn(), team))
	if other, judged := answer(1, 1, "anna"); !judged || !strings.Contains(other, `team","value":"vision"`) {
		t.Errorf("under other policies: judged %v, %s", judged, other)
	}
	team.Rego = "package team\ndeny contains \"late\" if input.now == \"never\""
	rules.Update(append(policies.BuiltIn(), team))
	for range 2 {
		if _, judged := answer(1, 1, "anna"); !judged {
			t.Error("a policy reads the time, and was not asked")
		}
	}
}

func FuzzMutator(f *testing.F) {
	desk := newDesk(f)
	mutator, validator := &pods.Mutator{Desk: desk}, &pods.Validator{Desk: desk}
	for _, seed := range []string{`{}`, `null`, `{"metadata":{"managedFields":[]},"spec":{"containers":[{"name":"a","env":[{"name":"A"},{"name":"A"}]}]}}`, `{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":1e99}}}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req admission.Request
		req.Operation, req.Namespace, req.Object.Raw = admissionv1.Create, "thesis", raw
		// Whatever comes, there is an answer, and never a panic.
		mutator.Handle(t.Context(), req)
		validator.Handle(t.Context(), req)
	})
}
