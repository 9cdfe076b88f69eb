// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/registration"
)

func valueOr[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// entries returns the webhooks of both configurations; missing ones have none.
func (o *Observation) entries() []registration.Entry {
	return registration.Configurations{Validating: o.Validating.Value, Mutating: o.Mutating.Value}.Entries()
}

const (
	applyManifests = "apply the manifests or the chart of this version; the CronJob certificates then writes the caBundle"
	addKindAgain   = "repeat sluice workload-kinds add or remove, which writes the setting podTemplates and the rules together"
)

// checkWebhookConfigurations compares both configurations with the manifests of this version.
func checkWebhookConfigurations(o *Observation) (out outcome) {
	if reason := firstUnread(o.Validating, o.Mutating); reason != "" {
		return skip("%s", reason)
	}
	live := registration.Configurations{Validating: o.Validating.Value, Mutating: o.Mutating.Value}
	shipped := registration.Configurations{Validating: o.ExpectedValidating, Mutating: o.ExpectedMutating}
	var added map[string][]admissionv1.RuleWithOperations
	if o.Parameters.Err == nil {
		added = workloadkind.AddedRules(o.parameters().PodTemplates)
	}
	for _, difference := range registration.Compare(live, shipped, added) {
		do := applyManifests
		switch {
		case difference.Webhook == workloadkind.AddedTemplatesWebhook || difference.Webhook == workloadkind.AddedWorkloadsWebhook:
			do = addKindAgain + "; otherwise " + applyManifests
		case !difference.Severe:
			do += ", unless the change is your own or a newer version of Sluice needs it"
		}
		out.add(map[bool]Result{true: Error, false: Warning}[difference.Severe], difference.Object, difference.Message, do)
	}
	out.ok = fmt.Sprintf("%d webhooks are registered as shipped, with a caBundle", len(live.Entries()))
	return out
}

// protectedNamespaces must never wait for the webhook: the cluster and Sluice itself start in them.
var protectedNamespaces = []string{"kube-system", systemNamespace, agentNamespace}

// checkWebhookNamespaces checks that no webhook is called for the objects of other APIs in protected namespaces.
func checkWebhookNamespaces(o *Observation) (out outcome) {
	if reason := firstUnread(o.Validating, o.Mutating); reason != "" {
		return skip("%s", reason)
	}
	entries := o.entries()
	if len(entries) == 0 {
		return skip("there are no webhook configurations")
	}
	for i := range entries {
		e := &entries[i]
		if !slices.ContainsFunc(e.Rules, isOfOtherAPI) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(e.NamespaceSelector)
		if err != nil {
			out.add(Error, e.Object(), fmt.Sprintf("webhook %s has an invalid namespaceSelector: %v", e.Name, err), applyManifests)
			continue
		}
		for _, namespace := range protectedNamespaces {
			if selector.Matches(o.namespaceLabels(namespace)) {
				out.add(Error, e.Object(), fmt.Sprintf("webhook %s is called for objects in %s: that namespace then depends on the webhook",
					e.Name, namespace), applyManifests+"; remove labels of Sluice from the namespace "+namespace)
			}
		}
	}
	out.ok = "no webhook is called for workloads in " + strings.Join(protectedNamespaces, ", ")
	return out
}

// isOfOtherAPI reports whether a rule has namespaced objects that are not Sluice's own.
func isOfOtherAPI(rule admissionv1.RuleWithOperations) bool {
	return valueOr(rule.Scope, admissionv1.AllScopes) != admissionv1.ClusterScope &&
		!slices.Equal(rule.APIGroups, []string{v1alpha1.Group})
}

// namespaceLabels returns the labels of a namespace, and those that the API server sets if it could not be read.
func (o *Observation) namespaceLabels(name string) labels.Set {
	for i := range o.Namespaces.Value {
		if o.Namespaces.Value[i].Name == name {
			return o.Namespaces.Value[i].Labels
		}
	}
	return labels.Set{corev1.LabelMetadataName: name}
}
