// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

func TestRecordDecisions(t *testing.T) {
	pod := func(decisions string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationDecisions: decisions, "own": "1"}}}
	}
	long := strings.Repeat("x", maxDecisionsBytes)
	tests := map[string]struct {
		before  map[string]any
		changes map[string][]string
		paused  []string
		want    string
	}{
		"first call":               {before: map[string]any{}, changes: map[string][]string{"a": {"spec.x"}}, want: `{"a":["spec.x"]}`},
		"a paused denial":          {before: map[string]any{}, paused: []string{"b"}, want: `{"b":["denial paused"]}`},
		"the same again":           {before: pod(`{"b":["denial paused"]}`), paused: []string{"b"}, want: `{"b":["denial paused"]}`},
		"a second call adds":       {before: pod(`{"a":["spec.x"]}`), changes: map[string][]string{"a": {"spec.x", "spec.y"}, "b": {"spec.z"}}, want: `{"a":["spec.x","spec.y"],"b":["spec.z"]}`},
		"no object":                {before: pod("null"), changes: map[string][]string{"a": {"spec.x"}}, want: `{"a":["spec.x"]}`},
		"invalid JSON":             {before: pod(`{"a":`), changes: map[string][]string{"a": {"spec.x"}}, want: `{"a":["spec.x"]}`},
		"too long: only the names": {before: map[string]any{}, changes: map[string][]string{"a": {long}}, want: `{"a":null}`},
		"an existing one too long": {before: pod(`{"b":["` + long + `"]}`), changes: map[string][]string{"a": {"spec.x"}}, want: `{"a":["spec.x"]}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			after, err := recordDecisions(evaluation.Result{Result: decision.Result{
				Original: tc.before, Merged: merge.Result{Object: tc.before, ChangedPaths: tc.changes}, Paused: tc.paused,
			}})
			if err != nil {
				t.Fatal(err)
			}
			annotations := schema.AsMap(schema.AsMap(after["metadata"])["annotations"])
			if got := annotations[v1alpha1.AnnotationDecisions]; got != tc.want {
				t.Errorf("recorded %v, want %s", got, tc.want)
			}
		})
	}
}
