// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

// The webhooks for the kinds that AdmissionParameters adds. The manifests declare them without rules.
const (
	AddedWorkloadsWebhook = "added-workloads.sluice.dev"
	AddedTemplatesWebhook = "added-templates.sluice.dev"
)

// AddedRules returns the rules of the webhooks for added kinds, by the name of the webhook. A webhook without a kind has an
// empty list, so that the rules of a removed kind are removed.
func AddedRules(setting []v1alpha1.PodTemplates) map[string][]admissionregistrationv1.RuleWithOperations {
	added := NewAddedTemplates(setting)
	rules := map[string][]admissionregistrationv1.RuleWithOperations{AddedWorkloadsWebhook: {}, AddedTemplatesWebhook: {}}
	for _, entry := range setting {
		kind := schema.ParseGroupKind(entry.Kind)
		if _, ok := added[kind]; !ok {
			continue
		}
		version, scope := "*", admissionregistrationv1.NamespacedScope
		if entry.Version != "" {
			version = entry.Version
		}
		rule := admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{kind.Group}, APIVersions: []string{version}, Resources: []string{entry.Resource}, Scope: &scope,
			},
		}
		rules[AddedWorkloadsWebhook] = append(rules[AddedWorkloadsWebhook], rule)
		rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
		rules[AddedTemplatesWebhook] = append(rules[AddedTemplatesWebhook], rule)
	}
	return rules
}
