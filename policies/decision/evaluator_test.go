// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// limits are so long that no policy exceeds them on a busy machine.
var limits = engine.Limits{Evaluation: time.Minute, Request: time.Minute}

// evaluatePod evaluates a pod under policies, given by name.
func evaluatePod(t *testing.T, final bool, pod string, policies map[string]string) decision.Result {
	t.Helper()
	policyEngine, err := engine.New(engine.Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	var sources []engine.Source
	for name, rego := range policies {
		sources = append(sources, engine.Source{Name: name, Rego: "package " + strings.ReplaceAll(name, "-", "_") + "\n" + rego})
	}
	for _, report := range policyEngine.Update(sources) {
		for _, problem := range report.Problems {
			t.Fatal(problem)
		}
	}
	review, err := document.FromGo(map[string]any{"userInfo": map[string]any{"username": "anna"}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := policyEngine.Current()
	if err != nil {
		t.Fatal(err)
	}
	evaluator := &decision.Evaluator{}
	evaluate := evaluator.Mutate
	if final {
		evaluate = evaluator.Validate
	}
	got, err := evaluate(t.Context(), decision.Request{
		Policies: set, Now: policytime.System().Now(),
		Raw: []byte(pod), Review: review, Operation: v1alpha1.OperationCreate,
		Tenant: &decision.Tenant{Project: "thesis", Department: "students", TimeZone: time.UTC},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func denialText(result decision.Result) string {
	var lines []string
	for _, denial := range result.Denials {
		lines = append(lines, decision.FormatMessage(denial))
	}
	return strings.Join(lines, "\n")
}

const minimalPod = `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main","image":"x"}]}}`

func TestMutate(t *testing.T) {
	tests := map[string]struct {
		pod      string
		policies map[string]string
		denial   string // a part of the denial; empty if the pod is allowed
		label    any    // the label x of the result
	}{
		"an override":      {minimalPod, map[string]string{"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`}, "", "1"},
		"the default type": {minimalPod, map[string]string{"a": `overrides := {"metadata": {"labels": {"x": input.workload.type}}}`}, "", "train"},
		"a policy sets the type": {minimalPod, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": input.workload.type}}}`, "b": `type := "interactive"`,
		}, "", "interactive"},
		"malformed": {
			`{"metadata":{"annotations":{"gpu-fraction":"1.7"}},"spec":{"containers":[{"name":"main"}]}}`, nil,
			`metadata.annotations[gpu-fraction]: Invalid value: "1.7"`, nil,
		},
		"a misspelled request": {
			`{"metadata":{"annotations":{"gpu-fractoin":"0.5"}},"spec":{"containers":[{"name":"main","image":"x"}]}}`, nil,
			`metadata.annotations[gpu-fractoin]: has no meaning to Sluice; did you mean the annotation gpu-fraction?`, nil,
		},
		"a denial": {minimalPod, map[string]string{"a": `deny contains {"msg": "no", "field": "spec", "fix": "ask"}`}, "spec: no; ask (policy a)", nil},
		"a conflict": {minimalPod, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`, "b": `overrides := {"metadata": {"labels": {"x": "2"}}}`,
		}, "policy b sets", nil},
		"a policy that never converges": {minimalPod, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": concat("", [object.get(input.object.metadata, ["labels", "x"], ""), "1"])}}}`,
		}, "requests further changes to the object that it changed: metadata.labels[x]", nil},
		"a denied result": {minimalPod, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`,
			"b": `deny contains "not with x" if input.object.metadata.labels.x == "1"`,
		}, "not with x (policy b)", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := evaluatePod(t, false, tc.pod, tc.policies)
			text := denialText(got)
			if tc.denial != "" {
				if !strings.Contains(text, tc.denial) {
					t.Errorf("denied with %q, want %q in it", text, tc.denial)
				}
				return
			}
			if text != "" {
				t.Fatalf("denied: %s", text)
			}
			metadata, _ := got.Merged.Object["metadata"].(map[string]any)
			labels, _ := metadata["labels"].(map[string]any)
			if labels["x"] != tc.label {
				t.Errorf("label x is %v, want %v", labels["x"], tc.label)
			}
		})
	}
}

// The final object must have a policy's overrides, but not its defaults and appended elements.
func TestValidateEnforcesOverrides(t *testing.T) {
	override := map[string]string{"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`}
	if text := denialText(evaluatePod(t, true, minimalPod, override)); !strings.Contains(text, "another webhook reverted what this policy requires: metadata.labels[x]") {
		t.Errorf("a reverted override: %q", text)
	}
	met := `{"metadata":{"labels":{"x":"1"}},"spec":{"containers":[{"name":"main"}]}}`
	if text := denialText(evaluatePod(t, true, met, override)); text != "" {
		t.Errorf("an override in place: %q", text)
	}
	for name, rego := range map[string]string{
		"defaults": `defaults := {"metadata": {"labels": {"x": "1"}}}`,
		"append":   `append contains {"path": ["spec", "tolerations"], "value": {"key": "gpu", "operator": "Exists"}}`,
	} {
		if text := denialText(evaluatePod(t, true, minimalPod, map[string]string{"a": rego})); text != "" {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// Invariant: the same pod has the same result, and a mutated pod is not changed again.
func TestMutateIsIdempotent(t *testing.T) {
	policies := map[string]string{
		"a": `overrides := {"metadata": {"labels": {"x": "1"}}, "spec": {"terminationGracePeriodSeconds": 60}}`,
		"b": `nodes contains {"key": "pool", "operator": "In", "values": ["dgx"]}`,
		"c": `remove contains ["spec", "containers", "*", "env", {"name": "LIFTS"}]`,
	}
	pod := `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main","env":[{"name":"LIFTS","value":"1"},{"name":"KEEP","value":"2"}]}]}}`
	first := evaluatePod(t, false, pod, policies)
	raw, err := json.Marshal(first.Merged.Object)
	if err != nil {
		t.Fatal(err)
	}
	second := evaluatePod(t, false, string(raw), policies)
	if len(second.Merged.ChangedPaths) != 0 {
		t.Errorf("the mutated pod was changed again: %v", second.Merged.ChangedPaths)
	}
	if diff := cmp.Diff(first.Merged.Object, evaluatePod(t, false, pod, policies).Merged.Object); diff != "" {
		t.Errorf("the same request had another result:\n%s", diff)
	}
}

func FuzzMutate(f *testing.F) {
	for _, seed := range []string{minimalPod, `{}`, `[]`, `null`, `{"spec":{"containers":[{"name":"a"},{"name":"a"}]}}`, `{"metadata":{"labels":7}}`} {
		f.Add([]byte(seed))
	}
	policyEngine, err := engine.New(engine.Options{Limits: limits})
	if err != nil {
		f.Fatal(err)
	}
	policyEngine.Update([]engine.Source{{Name: "a", Rego: "package a\noverrides := {\"spec\": {\"containers\": {\"*\": {\"tty\": true}}}}\nnodes contains {\"key\": \"a\", \"operator\": \"Exists\"}"}})
	set, err := policyEngine.Current()
	if err != nil {
		f.Fatal(err)
	}
	evaluator := &decision.Evaluator{}
	f.Fuzz(func(t *testing.T, raw []byte) {
		// Any input has a result or an error, and none causes a panic.
		_, _ = evaluator.Mutate(t.Context(), decision.Request{
			Policies: set, Now: policytime.System().Now(), Raw: raw, Operation: v1alpha1.OperationCreate, Tenant: &decision.Tenant{TimeZone: time.UTC},
		})
	})
}
