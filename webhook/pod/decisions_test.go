// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

func TestRecordDecisions(t *testing.T) {
	pod := func(decisions string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationDecisions: decisions, "own": "1"}}}
	}
	long := strings.Repeat("x", maxDecisionsBytes)
	tests := map[string]struct {
		before  map[string]any
		changes map[string][]string
		want    string
	}{
		"first call":               {map[string]any{}, map[string][]string{"a": {"spec.x"}}, `{"a":["spec.x"]}`},
		"a second call adds":       {pod(`{"a":["spec.x"]}`), map[string][]string{"a": {"spec.x", "spec.y"}, "b": {"spec.z"}}, `{"a":["spec.x","spec.y"],"b":["spec.z"]}`},
		"no object":                {pod("null"), map[string][]string{"a": {"spec.x"}}, `{"a":["spec.x"]}`},
		"invalid JSON":             {pod(`{"a":`), map[string][]string{"a": {"spec.x"}}, `{"a":["spec.x"]}`},
		"too long: only the names": {map[string]any{}, map[string][]string{"a": {long}}, `{"a":null}`},
		"an existing one too long": {pod(`{"b":["` + long + `"]}`), map[string][]string{"a": {"spec.x"}}, `{"a":["spec.x"]}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			after, err := recordDecisions(tc.before, merge.Result{Object: tc.before, ChangedPaths: tc.changes})
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
