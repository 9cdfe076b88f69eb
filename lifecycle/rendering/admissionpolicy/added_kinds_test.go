// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// The policies that name every kind of workload name an added kind too, and no other policy does. Guards invariant 4.
func TestAddedKindsAreGuarded(t *testing.T) {
	load := func() []*unstructured.Unstructured {
		objects, err := LoadPolicies(manifests.Files, false)
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	rulesOf := func(policy *unstructured.Unstructured) []any {
		rules, _, err := unstructured.NestedSlice(policy.Object, "spec", "matchConstraints", "resourceRules")
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	before, after := load(), load()
	if err := addKinds(after, []v1alpha1.PodTemplates{
		{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.template"}},
		{Kind: "Workflow.argoproj.io", Resource: "others", Paths: []string{"spec.template"}},
	}); err != nil {
		t.Fatal(err)
	}
	operations := map[string][]any{
		"sluice-workload-metadata": {"CREATE", "UPDATE"}, "sluice-own-workloads": {"UPDATE", "DELETE"}, "sluice-controller-references": {"CREATE", "UPDATE"},
	}
	for i, policy := range after {
		want := rulesOf(before[i])
		if named, ok := operations[policy.GetName()]; ok && policy.GetKind() == policyKind {
			want = append(want, map[string]any{
				"apiGroups": []any{"example.org"}, "apiVersions": []any{"*"}, "resources": []any{"trainers"}, "operations": named,
			})
			delete(operations, policy.GetName())
		}
		if diff := cmp.Diff(want, rulesOf(policy)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", policy.GetName(), diff)
		}
	}
	if len(operations) > 0 {
		t.Errorf("missing policies: %v", operations)
	}
	if err := addKinds(after[:0], nil); err != nil {
		t.Error(err)
	}
}

// A policy whose rules cannot be read is an error, and is not applied without the kind.
func TestAddedKindsNeedTheRulesOfJobSets(t *testing.T) {
	for _, rules := range []any{"none", []any{}, []any{int64(7), map[string]any{"resources": []any{"jobs"}, "operations": []any{"CREATE"}}}} {
		policy := &unstructured.Unstructured{Object: map[string]any{
			"kind": policyKind, "metadata": map[string]any{"name": "sluice-workload-metadata"},
			"spec": map[string]any{"matchConstraints": map[string]any{"resourceRules": rules}},
		}}
		err := addKinds(slices.Repeat([]*unstructured.Unstructured{policy}, 2), []v1alpha1.PodTemplates{
			{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.template"}},
		})
		if err == nil {
			t.Errorf("%v: no error", rules)
		}
	}
}
