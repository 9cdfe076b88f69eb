// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// The webhooks have a rule for each added kind, and none for a kind that the setting cannot add.
func TestAddedRules(t *testing.T) {
	for name, tc := range map[string]struct {
		setting []v1alpha1.PodTemplates
		want    []string
	}{
		"none": {nil, nil},
		"two kinds": {
			[]v1alpha1.PodTemplates{
				{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.template"}},
				{Kind: "Tuner.ml.example.org", Resource: "tuners", Version: "v1beta1", Paths: []string{"spec.template"}},
			},
			[]string{"example.org/*/trainers", "ml.example.org/v1beta1/tuners"},
		},
		"a known kind and an invalid path": {
			[]v1alpha1.PodTemplates{
				{Kind: "Workflow.argoproj.io", Resource: "workflows", Paths: []string{"spec.template"}},
				{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"metadata"}},
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules := workloadkind.AddedRules(tc.setting)
			if len(rules) != 2 {
				t.Errorf("rules of %d webhooks", len(rules))
			}
			for webhook, operations := range map[string]int{workloadkind.AddedWorkloadsWebhook: 1, workloadkind.AddedTemplatesWebhook: 2} {
				if rules[webhook] == nil {
					t.Errorf("%s: nil keeps the former rules", webhook)
				}
				var got []string
				for _, rule := range rules[webhook] {
					got = append(got, rule.APIGroups[0]+"/"+rule.APIVersions[0]+"/"+rule.Resources[0])
					if len(rule.Operations) != operations || *rule.Scope != "Namespaced" {
						t.Errorf("%s: %v", webhook, rule)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got)\n%s", webhook, diff)
				}
			}
		})
	}
}
