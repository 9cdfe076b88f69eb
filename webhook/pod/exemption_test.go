// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/pod"
)

// The response of an exempted pod is used neither for a pod of another name nor after the end of the exemption. The pod
// records the exemption.
func TestExemptionsAndCachedResponses(t *testing.T) {
	until := pausedAt.Add(time.Hour)
	base := newBase(t, engine.Source{
		Name: "team", Rego: "package team\ndeny contains \"no pods today\"",
		Exemptions: []v1alpha1.PolicyExemption{{Projects: []string{"thesis"}, Names: []string{"a*"}, Reason: "migration", Until: metav1.NewTime(until)}},
	})
	clock := &settableClock{policytime.System(), pausedAt}
	base.Evaluator.Clock = clock
	mutator := &pod.Mutator{Base: base}
	named := func(name string) []byte { return []byte(strings.Replace(plainPod, `"a"`, `"`+name+`"`, 1)) }
	for i, step := range []struct {
		at      time.Time
		name    string
		allowed bool
	}{
		{pausedAt, "a1", true},
		{pausedAt, "b", false},
		{pausedAt, "a1", true},
		{until.Add(-time.Second), "a1", true},
		{until, "a1", false},
		{pausedAt, "a2", true},
	} {
		clock.now = step.at
		request := createRequest(named(step.name))
		response := mutator.Handle(t.Context(), request)
		if response.Allowed != step.allowed {
			t.Fatalf("step %d: allowed %v: %+v", i, response.Allowed, response.Result)
		}
		if !step.allowed {
			continue
		}
		const warning = "exempted until 2026-11-24T13:00:00Z (migration): no pods today (policy team)"
		if !slices.Contains(response.Warnings, warning) {
			t.Errorf("step %d: warnings %q, want %q", i, response.Warnings, warning)
		}
		request.Object.Raw = applyPatch(t, request.Object.Raw, response)
		var recorded map[string][]string
		if err := json.Unmarshal([]byte(decisions(t, request.Object.Raw)), &recorded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"denial exempted"}, recorded["team"]); diff != "" {
			t.Errorf("step %d: recorded (-want +got):\n%s", i, diff)
		}
		if final := (&pod.Validator{Base: base}).Handle(t.Context(), request); !final.Allowed {
			t.Errorf("step %d: the final phase denies the pod: %s", i, final.Result.Message)
		}
	}
}

// A pod that was mutated before a library changed is sent again.
func TestLibraryChangeBetweenMutationAndValidation(t *testing.T) {
	library := func(value string) engine.Source {
		return engine.Source{Name: "tiers", Type: v1alpha1.PolicyTypeLibrary, Rego: "package lib.tiers\n\ntier := \"" + value + "\"\n"}
	}
	team := engine.Source{Name: "team", Rego: "package team\n\nimport data.lib.tiers\n\noverrides := {\"metadata\": {\"labels\": {\"tier\": tiers.tier}}}\n"}
	base := newBase(t, library("gold"), team)
	request := createRequest([]byte(plainPod))
	response := (&pod.Mutator{Base: base}).Handle(t.Context(), request)
	if !response.Allowed {
		t.Fatal(response.Result.Message)
	}
	request.Object.Raw = applyPatch(t, request.Object.Raw, response)
	if !strings.Contains(string(request.Object.Raw), `"tier":"gold"`) {
		t.Fatalf("the pod has no label tier: %s", request.Object.Raw)
	}
	base.Evaluator.Engine.Update(append(policies.BuiltIn(), library("iron"), team))
	if final := (&pod.Validator{Base: base}).Handle(t.Context(), request); final.Result.Code != http.StatusTooManyRequests {
		t.Errorf("the final phase: %v", final.Result)
	}
	request = createRequest([]byte(plainPod))
	if response := (&pod.Mutator{Base: base}).Handle(t.Context(), request); !strings.Contains(string(response.Patch), "iron") && !strings.Contains(string(applyPatch(t, request.Object.Raw, response)), "iron") {
		t.Errorf("the new version of the library is not in force: %s", response.Patch)
	}
}
