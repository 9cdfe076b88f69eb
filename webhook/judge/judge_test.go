// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/tenant"
)

// judged asks about a pod under policies, by their names.
func judged(t *testing.T, final bool, pod string, policies map[string]string) judge.Judgement {
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
	review, err := engine.FromGo(map[string]any{"userInfo": map[string]any{"username": "anna"}})
	if err != nil {
		t.Fatal(err)
	}
	j := &judge.Judge{Engine: rules, Clock: clock.System()}
	ask := j.Settle
	if final {
		ask = j.Check
	}
	got, err := ask(t.Context(), judge.Question{
		Raw: []byte(pod), Review: review, Operation: v1alpha1.OperationCreate,
		Tenant: &tenant.Tenant{Project: "thesis", Department: "students", Zone: time.UTC},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func sentences(j judge.Judgement) string {
	var lines []string
	for _, denial := range j.Denials {
		lines = append(lines, judge.Sentence(denial))
	}
	return strings.Join(lines, "\n")
}

const bare = `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main","image":"x"}]}}`

func TestSettle(t *testing.T) {
	tests := map[string]struct {
		pod      string
		policies map[string]string
		refused  string // part of the denial; empty where it is let in
		label    any    // of the result
	}{
		"an override":               {bare, map[string]string{"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`}, "", "1"},
		"a type where none is said": {bare, map[string]string{"a": `overrides := {"metadata": {"labels": {"x": input.workload.type}}}`}, "", "train"},
		"a type that a policy gives": {bare, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": input.workload.type}}}`, "b": `type := "interactive"`,
		}, "", "interactive"},
		"malformed": {
			`{"metadata":{"annotations":{"gpu-fraction":"1.7"}},"spec":{"containers":[{"name":"main"}]}}`, nil,
			`metadata.annotations[gpu-fraction]: Invalid value: "1.7"`, nil,
		},
		"a denial": {bare, map[string]string{"a": `deny contains {"msg": "no", "field": "spec", "fix": "ask"}`}, "spec: no; ask (policy a)", nil},
		"a conflict": {bare, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`, "b": `overrides := {"metadata": {"labels": {"x": "2"}}}`,
		}, "policy b wants", nil},
		"a policy that never settles": {bare, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": concat("", [object.get(input.object.metadata, ["labels", "x"], ""), "1"])}}}`,
		}, "wants something else of what it made itself: metadata.labels[x]", nil},
		"a result that is refused": {bare, map[string]string{
			"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`,
			"b": `deny contains "not with x" if input.object.metadata.labels.x == "1"`,
		}, "not with x (policy b)", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := judged(t, false, tc.pod, tc.policies)
			text := sentences(got)
			if tc.refused != "" {
				if !strings.Contains(text, tc.refused) {
					t.Errorf("refused with %q, want %q in it", text, tc.refused)
				}
				return
			}
			if text != "" {
				t.Fatalf("refused: %s", text)
			}
			metadata, _ := got.Result.Object["metadata"].(map[string]any)
			labels, _ := metadata["labels"].(map[string]any)
			if labels["x"] != tc.label {
				t.Errorf("label x is %v, want %v", labels["x"], tc.label)
			}
		})
	}
}

// What a policy demands must hold in the end; what it only proposes need not.
func TestCheckHoldsWhatIsDemanded(t *testing.T) {
	demand := map[string]string{"a": `overrides := {"metadata": {"labels": {"x": "1"}}}`}
	if text := sentences(judged(t, true, bare, demand)); !strings.Contains(text, "was undone after it was met, by another webhook: metadata.labels[x]") {
		t.Errorf("an undone demand: %q", text)
	}
	met := `{"metadata":{"labels":{"x":"1"}},"spec":{"containers":[{"name":"main"}]}}`
	if text := sentences(judged(t, true, met, demand)); text != "" {
		t.Errorf("a demand that holds: %q", text)
	}
	for name, proposal := range map[string]string{
		"defaults": `defaults := {"metadata": {"labels": {"x": "1"}}}`,
		"append":   `append contains {"path": ["spec", "tolerations"], "value": {"key": "gpu", "operator": "Exists"}}`,
	} {
		if text := sentences(judged(t, true, bare, map[string]string{"a": proposal})); text != "" {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// Invariant: the same pod gives the same answer, and what was settled stays.
func TestSettledIsSettled(t *testing.T) {
	policies := map[string]string{
		"a": `overrides := {"metadata": {"labels": {"x": "1"}}, "spec": {"terminationGracePeriodSeconds": 60}}`,
		"b": `nodes contains {"key": "pool", "operator": "In", "values": ["dgx"]}`,
		"c": `remove contains ["spec", "containers", "*", "env", {"name": "LIFTS"}]`,
	}
	pod := `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"main","env":[{"name":"LIFTS","value":"1"},{"name":"KEEP","value":"2"}]}]}}`
	first := judged(t, false, pod, policies)
	raw, err := json.Marshal(first.Result.Object)
	if err != nil {
		t.Fatal(err)
	}
	second := judged(t, false, string(raw), policies)
	if len(second.Result.Changes) != 0 {
		t.Errorf("settled, and changed again: %v", second.Result.Changes)
	}
	if diff := cmp.Diff(first.Result.Object, judged(t, false, pod, policies).Result.Object); diff != "" {
		t.Errorf("another answer to the same question:\n%s", diff)
	}
}

func TestNothingIsAdmittedBeforePoliciesAreLoaded(t *testing.T) {
	rules, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := &judge.Judge{Engine: rules, Clock: clock.System()}
	if _, err := j.Settle(t.Context(), judge.Question{Raw: []byte(bare)}); err == nil {
		t.Error("no policies are loaded, and a pod was judged")
	}
}

func FuzzSettle(f *testing.F) {
	for _, seed := range []string{bare, `{}`, `[]`, `null`, `{"spec":{"containers":[{"name":"a"},{"name":"a"}]}}`, `{"metadata":{"labels":7}}`} {
		f.Add([]byte(seed))
	}
	rules, err := engine.New(engine.Options{})
	if err != nil {
		f.Fatal(err)
	}
	rules.Update([]engine.Source{{Name: "a", Rego: "package a\noverrides := {\"spec\": {\"containers\": {\"*\": {\"tty\": true}}}}\nnodes contains {\"key\": \"a\", \"operator\": \"Exists\"}"}})
	j := &judge.Judge{Engine: rules, Clock: clock.System()}
	f.Fuzz(func(t *testing.T, raw []byte) {
		// Whatever comes, it is an answer or an error, never a panic.
		_, _ = j.Settle(t.Context(), judge.Question{Raw: raw, Operation: v1alpha1.OperationCreate, Tenant: &tenant.Tenant{Zone: time.UTC}})
	})
}
