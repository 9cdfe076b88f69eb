// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// slowPolicy warns, and exceeds its processor time for pods with a label.
var slowPolicy = engine.Source{
	Name: "slow", Enforcement: v1alpha1.EnforcementWarn,
	Rego: `package slow
deny contains "not so" if not input.object.metadata.labels.slow
deny contains "slow" if {
	input.object.metadata.labels.slow
	count([1 | some i in numbers.range(1, 3000); some j in numbers.range(1, 3000); i * j == 7]) > 5
}`,
}

// The response to a pod is not cached while a policy in Warn is skipped, since the policy would warn of the same pod
// later. Guards invariant 1 of the design.
func TestResponseWithASkippedPolicyIsNotCached(t *testing.T) {
	var results []engine.Result
	base := newBaseWithOptions(t, engine.Options{
		Limits: engine.Limits{Evaluation: 50 * time.Millisecond, Request: time.Minute},
		Observe: func(e engine.Evaluation) {
			if e.Policy == slowPolicy.Name {
				results = append(results, e.Result)
			}
		},
	}, slowPolicy)
	mutator := &pod.Mutator{Base: base}
	for i := range 3 {
		mutator.Handle(t.Context(), labeledRequest(t, i))
	}
	for attempt := range 2 {
		results = nil
		response := mutator.Handle(t.Context(), trainingRequest(t, 1, attempt, "anna"))
		if !response.Allowed || len(response.Warnings) > 0 {
			t.Fatalf("attempt %d: allowed %v, warnings %v", attempt, response.Allowed, response.Warnings)
		}
		if !slices.Contains(results, engine.ResultQuarantined) {
			t.Errorf("attempt %d: the policy was evaluated as %v, want %s", attempt, results, engine.ResultQuarantined)
		}
	}
}

// labeledRequest returns the request of a pod for which slowPolicy is slow.
func labeledRequest(t *testing.T, number int) admission.Request {
	t.Helper()
	request := trainingRequest(t, number, number, "anna")
	object, err := evaluation.DecodeObject(request.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	object["metadata"].(map[string]any)["labels"].(map[string]any)["slow"] = "yes"
	if request.Object.Raw, err = json.Marshal(object); err != nil {
		t.Fatal(err)
	}
	return request
}
