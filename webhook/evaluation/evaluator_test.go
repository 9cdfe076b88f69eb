// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/webhook/evaluation"
)

// evaluatePod asks about a pod under policies, by their names.
func evaluatePod(t *testing.T, final bool, pod string, policies map[string]string) evaluation.Result {
	t.Helper()
	rules, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var sources []engine.Source
	for name, rego := range policies {
		sources = append(sources, engine.Source{Name: name, Rego: "package " + strings.ReplaceAll(name, "-", "_") + "\n" + rego})
	}
	for _, report := range rules.Update(sources) {
		for _, problem := range report.Problems {
			t.Fatal(problem)
		}
	}
	review, err := document.FromGo(map[string]any{"userInfo": map[string]any{"username": "anna"}})
	if err != nil {
		t.Fatal(err)
	}
	j := &evaluation.Evaluator{Engine: rules, Clock: policytime.System()}
	ask := j.Mutate
	if final {
		ask = j.Validate
	}
	got, err := ask(t.Context(), evaluation.Request{
		Raw: []byte(pod), Review: review, Operation: v1alpha1.OperationCreate,
		Tenant: &evaluation.Tenant{Project: "thesis", Department: "students", TimeZone: time.UTC},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func denialText(j evaluation.Result) string {
	var lines []string
	for _, denial := range j.Denials {
		lines = append(lines, evaluation.FormatMessage(denial))
	}
	return strings.Join(lines, "\n")
}

const minimalPod = `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main","image":"x"}]}}`

func TestMutate(t *testing.T) {
	tests := map[string]struct {
		pod      string
		policies map[string]string
		refused  string // part of the denial; empty where it is let in
		label    any    // of the result
	}{
		"an override":               {minimalPod, map[string]string{"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`}, "", "1"},
		"a type where none is said": {minimalPod, map[string]string{"a": `overrides := {"metadata": {"labels": {"x": input.workload.type}}}`}, "", "train"},
		"a type that a policy gives": {minimalPod, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": input.workload.type}}}`, "b": `type := "interactive"`,
		}, "", "interactive"},
		"malformed": {
			`{"metadata":{"annotations":{"gpu-fraction":"1.7"}},"spec":{"containers":[{"name":"main"}]}}`, nil,
			`metadata.annotations[gpu-fraction]: Invalid value: "1.7"`, nil,
		},
		"a denial": {minimalPod, map[string]string{"a": `deny contains {"msg": "no", "field": "spec", "fix": "ask"}`}, "spec: no; ask (policy a)", nil},
		"a conflict": {minimalPod, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`, "b": `overrides := {"metadata": {"labels": {"x": "2"}}}`,
		}, "policy b sets", nil},
		"a policy that never settles": {minimalPod, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": concat("", [object.get(input.object.metadata, ["labels", "x"], ""), "1"])}}}`,
		}, "wants something else of what it made itself: metadata.labels[x]", nil},
		"a result that is refused": {minimalPod, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`,
			"b": `deny contains "not with x" if input.object.metadata.labels.x == "1"`,
		}, "not with x (policy b)", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := evaluatePod(t, false, tc.pod, tc.policies)
			text := denialText(got)
			if tc.refused != "" {
				if !strings.Contains(text, tc.refused) {
					t.Errorf("refused with %q, want %q in it", text, tc.refused)
				}
				return
			}
			if text != "" {
				t.Fatalf("refused: %s", text)
			}
			metadata, _ := got.Merged.Object["metadata"].(map[string]any)
			labels, _ := metadata["labels"].(map[string]any)
			if labels["x"] != tc.label {
				t.Errorf("label x is %v, want %v", labels["x"], tc.label)
			}
		})
	}
}

// What a policy demands must hold in the end; what it only proposes need not.
func TestValidateEnforcesOverrides(t *testing.T) {
	demand := map[string]string{"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`}
	if text := denialText(evaluatePod(t, true, minimalPod, demand)); !strings.Contains(text, "was undone after it was met, by another webhook: metadata.labels[x]") {
		t.Errorf("an undone demand: %q", text)
	}
	met := `{"metadata":{"labels":{"x":"1"}},"spec":{"containers":[{"name":"main"}]}}`
	if text := denialText(evaluatePod(t, true, met, demand)); text != "" {
		t.Errorf("a demand that holds: %q", text)
	}
	for name, proposal := range map[string]string{
		"defaults": `defaults := {"metadata": {"labels": {"x": "1"}}}`,
		"append":   `append contains {"path": ["spec", "tolerations"], "value": {"key": "gpu", "operator": "Exists"}}`,
	} {
		if text := denialText(evaluatePod(t, true, minimalPod, map[string]string{"a": proposal})); text != "" {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// Invariant: the same pod gives the same answer, and what was settled stays.
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
		t.Errorf("settled, and changed again: %v", second.Merged.ChangedPaths)
	}
	if diff := cmp.Diff(first.Merged.Object, evaluatePod(t, false, pod, policies).Merged.Object); diff != "" {
		t.Errorf("another answer to the same question:\n%s", diff)
	}
}

func TestMutateFailsBeforePoliciesAreLoaded(t *testing.T) {
	rules, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := &evaluation.Evaluator{Engine: rules, Clock: policytime.System()}
	if _, err := j.Mutate(t.Context(), evaluation.Request{Raw: []byte(minimalPod)}); err == nil {
		t.Error("no policies are loaded, and a pod was judged")
	}
}

func FuzzMutate(f *testing.F) {
	for _, seed := range []string{minimalPod, `{}`, `[]`, `null`, `{"spec":{"containers":[{"name":"a"},{"name":"a"}]}}`, `{"metadata":{"labels":7}}`} {
		f.Add([]byte(seed))
	}
	rules, err := engine.New(engine.Options{})
	if err != nil {
		f.Fatal(err)
	}
	rules.Update([]engine.Source{{Name: "a", Rego: "package a\noverrides := {\"spec\": {\"containers\": {\"*\": {\"tty\": true}}}}\nnodes contains {\"key\": \"a\", \"operator\": \"Exists\"}"}})
	j := &evaluation.Evaluator{Engine: rules, Clock: policytime.System()}
	f.Fuzz(func(t *testing.T, raw []byte) {
		// Whatever comes, it is an answer or an error, never a panic.
		_, _ = j.Mutate(t.Context(), evaluation.Request{Raw: raw, Operation: v1alpha1.OperationCreate, Tenant: &evaluation.Tenant{TimeZone: time.UTC}})
	})
}
