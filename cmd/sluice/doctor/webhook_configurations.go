// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// webhookEntry is one webhook of a configuration, of either kind.
type webhookEntry struct {
	kind, configuration, name string

	client            admissionv1.WebhookClientConfig
	rules             []admissionv1.RuleWithOperations
	failurePolicy     admissionv1.FailurePolicyType
	namespaceSelector *metav1.LabelSelector
	// further has the other fields by their names.
	further map[string]any
}

// object names the configuration of the entry.
func (e *webhookEntry) object() string { return e.kind + " " + e.configuration }

// newEntry returns an entry with the defaults of the API server, so that a manifest equals the stored object.
func newEntry(w *admissionv1.ValidatingWebhook, further map[string]any) webhookEntry {
	e := webhookEntry{
		name: w.Name, client: w.ClientConfig, failurePolicy: valueOr(w.FailurePolicy, admissionv1.Fail),
		namespaceSelector: cmp.Or(w.NamespaceSelector, &metav1.LabelSelector{}), further: further,
	}
	for _, rule := range w.Rules {
		rule.Scope = ptrTo(valueOr(rule.Scope, admissionv1.AllScopes))
		e.rules = append(e.rules, rule)
	}
	further["objectSelector"] = *cmp.Or(w.ObjectSelector, &metav1.LabelSelector{})
	further["matchPolicy"] = valueOr(w.MatchPolicy, admissionv1.Equivalent)
	further["sideEffects"] = valueOr(w.SideEffects, "")
	further["timeoutSeconds"] = valueOr(w.TimeoutSeconds, 10)
	further["matchConditions"] = append([]admissionv1.MatchCondition{}, w.MatchConditions...)
	return e
}

func valueOr[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

func ptrTo[T any](value T) *T { return &value }

func validatingEntries(c *admissionv1.ValidatingWebhookConfiguration) (entries []webhookEntry) {
	if c == nil {
		return nil
	}
	for i := range c.Webhooks {
		e := newEntry(&c.Webhooks[i], map[string]any{})
		e.kind, e.configuration = "ValidatingWebhookConfiguration", c.Name
		entries = append(entries, e)
	}
	return entries
}

func mutatingEntries(c *admissionv1.MutatingWebhookConfiguration) (entries []webhookEntry) {
	if c == nil {
		return nil
	}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		same := admissionv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, MatchConditions: w.MatchConditions,
		}
		e := newEntry(&same, map[string]any{"reinvocationPolicy": valueOr(w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)})
		e.kind, e.configuration = "MutatingWebhookConfiguration", c.Name
		entries = append(entries, e)
	}
	return entries
}

// entries returns the webhooks of both configurations; missing ones have none.
func (o *Observation) entries() []webhookEntry {
	return slices.Concat(validatingEntries(o.Validating.Value), mutatingEntries(o.Mutating.Value))
}

const applyManifests = "apply the manifests or the chart of this version; the webhook then writes the caBundle by itself"

// checkWebhookConfigurations compares both configurations with the manifests of this version.
func checkWebhookConfigurations(o *Observation) (out outcome) {
	if reason := firstUnread(o.Validating, o.Mutating); reason != "" {
		return skip("%s", reason)
	}
	live, expected := o.entries(), slices.Concat(validatingEntries(o.ExpectedValidating), mutatingEntries(o.ExpectedMutating))
	find := func(list []webhookEntry, of *webhookEntry) *webhookEntry {
		at := slices.IndexFunc(list, func(e webhookEntry) bool { return e.kind == of.kind && e.name == of.name })
		if at < 0 {
			return nil
		}
		return &list[at]
	}
	var added map[string][]admissionv1.RuleWithOperations
	if o.Parameters.Value != nil {
		added = workloadkind.AddedRules(o.Parameters.Value.Spec.PodTemplates)
	}
	for i := range expected {
		want := &expected[i]
		have := find(live, want)
		if have == nil {
			out.add(Error, want.object(), "webhook "+want.name+" is missing: what it guards is not evaluated", applyManifests)
			continue
		}
		if want.rules = append(want.rules, added[want.name]...); len(want.rules) == 0 && o.Parameters.Err != nil {
			want.rules = have.rules // the webhook writes them from a setting that cannot be read
		}
		compareEntries(&out, want, have)
	}
	for i := range live {
		if find(expected, &live[i]) == nil {
			out.add(Warning, live[i].object(), "webhook "+live[i].name+" is not one of this version",
				"remove the entry if no newer version of Sluice needs it")
		}
	}
	out.ok = fmt.Sprintf("%d webhooks are registered as shipped, with a caBundle", len(live))
	return out
}

// compareEntries adds how a webhook differs from what is expected. Cloud providers add namespaces to selectors, so a
// changed selector is a warning.
func compareEntries(out *outcome, want, have *webhookEntry) {
	if have.failurePolicy != want.failurePolicy {
		out.add(Error, have.object(), fmt.Sprintf("webhook %s has failurePolicy %s, and %s as shipped",
			have.name, have.failurePolicy, want.failurePolicy), applyManifests)
	}
	if !reflect.DeepEqual(want.rules, have.rules) {
		out.add(Error, have.object(), "webhook "+have.name+" has other rules than as shipped", applyManifests)
	}
	if path := servicePath(&want.client); path != "" && path != servicePath(&have.client) {
		out.add(Error, have.object(), fmt.Sprintf("webhook %s calls %q, and %q as shipped", have.name, servicePath(&have.client), path), applyManifests)
	}
	if len(have.client.CABundle) == 0 {
		out.add(Error, have.object(), "webhook "+have.name+" has no caBundle, so that the API server does not trust it",
			"see the logs of the webhook, which writes it at its start")
	}
	var changed []string
	if !reflect.DeepEqual(want.namespaceSelector, have.namespaceSelector) {
		changed = append(changed, "namespaceSelector")
	}
	for name := range want.further {
		if !reflect.DeepEqual(want.further[name], have.further[name]) {
			changed = append(changed, name)
		}
	}
	if len(changed) > 0 {
		out.add(Warning, have.object(), fmt.Sprintf("webhook %s was changed in %s", have.name, listFields(changed)),
			applyManifests+", unless the change is your own")
	}
}

// servicePath returns the path that the API server calls, of a Service or a URL.
func servicePath(c *admissionv1.WebhookClientConfig) string {
	switch {
	case c.Service != nil && c.Service.Path != nil:
		return *c.Service.Path
	case c.URL != nil:
		_, rest, _ := strings.Cut(*c.URL, "://")
		if at := strings.IndexByte(rest, '/'); at >= 0 {
			return rest[at:]
		}
	}
	return ""
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
		if !slices.ContainsFunc(e.rules, isOfOtherAPI) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(e.namespaceSelector)
		if err != nil {
			out.add(Error, e.object(), fmt.Sprintf("webhook %s has an invalid namespaceSelector: %v", e.name, err), applyManifests)
			continue
		}
		for _, namespace := range protectedNamespaces {
			if selector.Matches(o.namespaceLabels(namespace)) {
				out.add(Error, e.object(), fmt.Sprintf("webhook %s is called for objects in %s: that namespace then depends on the webhook",
					e.name, namespace), applyManifests+"; remove labels of Sluice from the namespace "+namespace)
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
