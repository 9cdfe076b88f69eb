// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// workloadPolicies are the policies that name every kind of workload: who created an object, who changes it, and what
// controls it.
var workloadPolicies = []string{"sluice-workload-metadata", "sluice-own-workloads", "sluice-controller-references"}

// addKinds adds the kinds of the setting podTemplates to the policies that name every kind of workload, with the operations
// that they have for JobSets.
func addKinds(policies []*unstructured.Unstructured, setting []v1alpha1.PodTemplates) error {
	added := workloadkind.NewAddedTemplates(setting)
	if len(added) == 0 {
		return nil
	}
	for _, policy := range policies {
		if policy.GetKind() != policyKind || !slices.Contains(workloadPolicies, policy.GetName()) {
			continue
		}
		rules, _, err := unstructured.NestedSlice(policy.Object, "spec", "matchConstraints", "resourceRules")
		if err != nil {
			return fmt.Errorf("%s: spec.matchConstraints.resourceRules: %w", policy.GetName(), err)
		}
		operations, err := operationsOfJobSets(rules)
		if err != nil {
			return fmt.Errorf("%s: %w", policy.GetName(), err)
		}
		for _, entry := range setting {
			kind := schema.ParseGroupKind(entry.Kind)
			if _, ok := added[kind]; !ok {
				continue
			}
			rules = append(rules, map[string]any{
				"apiGroups": []any{kind.Group}, "apiVersions": []any{"*"}, "resources": []any{entry.Resource}, "operations": operations,
			})
		}
		if err := unstructured.SetNestedSlice(policy.Object, rules, "spec", "matchConstraints", "resourceRules"); err != nil {
			return fmt.Errorf("%s: %w", policy.GetName(), err)
		}
	}
	return nil
}

func operationsOfJobSets(rules []any) ([]any, error) {
	for _, element := range rules {
		rule, _ := element.(map[string]any)
		resources, _ := rule["resources"].([]any)
		if operations, ok := rule["operations"].([]any); ok && slices.Contains(resources, any("jobsets")) {
			return operations, nil
		}
	}
	return nil, fmt.Errorf("spec.matchConstraints.resourceRules: no rule of %d has jobsets", len(rules))
}
