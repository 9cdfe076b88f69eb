// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// The API server converts the pod, its former state included, once for each policy with match conditions, even if they
// are false, and three times more if they are true. These conversions are most of what a project's updates cost.
func TestFewPoliciesMatchUpdatesOfPods(t *testing.T) {
	for resource, want := range map[string][]string{
		"pods":        {"sluice-controller-references", "sluice-managed-metadata", "sluice-own-workloads"},
		"pods/status": {"sluice-managed-metadata"},
	} {
		got := []string{}
		for name, p := range loadSet(t, false).policies {
			if !matchesUpdatesInProjects(p, resource) {
				continue
			}
			got = append(got, name)
			if n := len(p.Spec.MatchConditions); n != 1 {
				t.Errorf("%s has %d match conditions, want one: the API server evaluates all, whatever the first one yields", name, n)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("policies on updates of %s (-want +got)\n%s", resource, diff)
		}
	}
}

func matchesUpdatesInProjects(p *admissionv1.ValidatingAdmissionPolicy, resource string) bool {
	constraints := p.Spec.MatchConstraints
	outside := constraints.NamespaceSelector != nil && slices.ContainsFunc(constraints.NamespaceSelector.MatchExpressions,
		func(e metav1.LabelSelectorRequirement) bool {
			return e.Key == v1alpha1.LabelProject && e.Operator == metav1.LabelSelectorOpDoesNotExist
		})
	return !outside && slices.ContainsFunc(constraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(rule.APIGroups, "") && slices.Contains(rule.Resources, resource) &&
			slices.Contains(rule.Operations, admissionv1.Update)
	})
}

// A pod from before its project has more labels and annotations than a project admits, and its status is still written.
// Guards invariant 10 of the design: CEL's limits are not exceeded.
func TestUpdatesOfLargePods(t *testing.T) {
	pod := func(label, annotation string) string {
		keys := strings.TrimPrefix(numberedLabels(10000), ", ")
		return `{apiVersion: v1, kind: Pod, metadata: {name: large, labels: {` + keys + `, own: ` + label + `}, annotations: {` + keys +
			`, own: ` + annotation + `}}, spec: {containers: []}}`
	}
	expect{
		"a label":              {admissionRequest{resource: "pods", old: pod("a", "a"), object: pod("b", "a")}, ""},
		"an annotation":        {admissionRequest{resource: "pods/status", old: pod("a", "a"), object: pod("a", "b")}, ""},
		"both":                 {admissionRequest{resource: "pods", old: pod("a", "a"), object: pod("b", "b")}, ""},
		"a further label":      {admissionRequest{resource: "pods", old: pod("a", "a"), object: pod("a, more: x", "a")}, "at most 256 are allowed"},
		"a device":             {admissionRequest{resource: "pods", old: pod("a", "a"), object: pod("a", "a, cdi.k8s.io/main: x")}, "cdi.k8s.io/main: gives"},
		"a label of GPU group": {admissionRequest{resource: "pods", old: pod("a", "a"), object: pod("a, runai-gpu-group: x", "a")}, "only KAI-Scheduler"},
	}.run(t)
}
