// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration compares the webhook configurations of a cluster with those that are shipped. No admission policy can guard
// these kinds, so that `sluice doctor` and a metric of lifecycle report what differs.
package registration

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// Name is the name of both configurations.
const Name = "sluice"

// Configurations are the two webhook configurations of Sluice; nil is one that does not exist.
type Configurations struct {
	Validating *admissionv1.ValidatingWebhookConfiguration
	Mutating   *admissionv1.MutatingWebhookConfiguration
}

// Shipped reads the configurations from the files of package manifests.
func Shipped(files fs.FS) (Configurations, error) {
	c := Configurations{&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}}
	var errs []error
	for file, into := range map[string]any{"base/admission/validating.yaml": c.Validating, "base/admission/mutating.yaml": c.Mutating} {
		raw, err := fs.ReadFile(files, file)
		if err == nil {
			err = yaml.UnmarshalStrict(raw, into)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read webhook configuration %s: %w", file, err))
		}
	}
	return c, errors.Join(errs...)
}

// Entry is one webhook of a configuration, of either kind, with the defaults of the API server.
type Entry struct {
	// Kind is ValidatingWebhookConfiguration or MutatingWebhookConfiguration, and Name the name of the webhook.
	Kind, Name        string
	Client            admissionv1.WebhookClientConfig
	Rules             []admissionv1.RuleWithOperations
	NamespaceSelector *metav1.LabelSelector
	// selecting has the other fields that decide what reaches the webhook and what its failure means, and further the rest, by
	// their names.
	selecting, further map[string]any
}

// Object names the configuration of the entry.
func (e *Entry) Object() string { return e.Kind + " " + Name }

// Entries returns the webhooks of both configurations.
func (c Configurations) Entries() (entries []Entry) {
	if c.Validating != nil {
		for i := range c.Validating.Webhooks {
			entries = append(entries, newEntry("ValidatingWebhookConfiguration", &c.Validating.Webhooks[i]))
		}
	}
	if c.Mutating != nil {
		for i := range c.Mutating.Webhooks {
			w := &c.Mutating.Webhooks[i]
			e := newEntry("MutatingWebhookConfiguration", &admissionv1.ValidatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, MatchConditions: w.MatchConditions,
			})
			e.further["reinvocationPolicy"] = ptr.Deref(w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			entries = append(entries, e)
		}
	}
	return entries
}

func newEntry(kind string, w *admissionv1.ValidatingWebhook) Entry {
	e := Entry{
		Kind: kind, Name: w.Name, Client: w.ClientConfig, NamespaceSelector: cmp.Or(w.NamespaceSelector, &metav1.LabelSelector{}),
		selecting: map[string]any{
			"failurePolicy":   ptr.Deref(w.FailurePolicy, admissionv1.Fail),
			"objectSelector":  *cmp.Or(w.ObjectSelector, &metav1.LabelSelector{}),
			"matchConditions": append([]admissionv1.MatchCondition{}, w.MatchConditions...),
		},
		further: map[string]any{
			"namespaceSelector": *cmp.Or(w.NamespaceSelector, &metav1.LabelSelector{}),
			"matchPolicy":       ptr.Deref(w.MatchPolicy, admissionv1.Equivalent),
			"sideEffects":       ptr.Deref(w.SideEffects, ""),
			"timeoutSeconds":    ptr.Deref(w.TimeoutSeconds, 10),
		},
	}
	for _, rule := range w.Rules {
		rule.Scope = ptr.To(ptr.Deref(rule.Scope, admissionv1.AllScopes))
		e.Rules = append(e.Rules, rule)
	}
	return e
}

// Difference is one way in which a webhook is not as shipped.
type Difference struct {
	// Object names the configuration, and Webhook the entry.
	Object, Webhook string
	// Message says what differs.
	Message string
	// Severe is set unless the change is one that cloud providers make, too, or one that no request notices.
	Severe bool
}

// Compare returns how the configurations of a cluster differ from the shipped ones. added has the rules of the kinds that the
// AdmissionParameters add, by webhook; nil if they are unknown: then the rules of webhooks without shipped ones are not compared.
func Compare(live, shipped Configurations, added map[string][]admissionv1.RuleWithOperations) (found []Difference) {
	registered, expected := live.Entries(), shipped.Entries()
	find := func(list []Entry, of *Entry) *Entry {
		at := slices.IndexFunc(list, func(e Entry) bool { return e.Kind == of.Kind && e.Name == of.Name })
		if at < 0 {
			return nil
		}
		return &list[at]
	}
	for i := range expected {
		desired := &expected[i]
		present := find(registered, desired)
		if present == nil {
			message := "webhook " + desired.Name + " is missing: what it guards is not evaluated"
			found = append(found, Difference{desired.Object(), desired.Name, message, true})
			continue
		}
		if desired.Rules = append(desired.Rules, added[desired.Name]...); len(desired.Rules) == 0 && added == nil {
			desired.Rules = present.Rules
		}
		found = append(found, compareEntry(desired, present)...)
	}
	for i := range registered {
		if e := &registered[i]; find(expected, e) == nil {
			message := "webhook " + e.Name + " is not one of this version"
			if e.Client.URL != nil {
				message += "; it sends objects to " + *e.Client.URL
			}
			found = append(found, Difference{e.Object(), e.Name, message, e.Client.URL != nil})
		}
	}
	return found
}

// compareEntry returns how a webhook differs from what is expected. Cloud providers add namespaces to selectors.
func compareEntry(desired, present *Entry) (found []Difference) {
	add := func(severe bool, format string, args ...any) {
		found = append(found, Difference{present.Object(), present.Name, "webhook " + present.Name + " " + fmt.Sprintf(format, args...), severe})
	}
	switch {
	case present.Client.URL != nil && desired.Client.URL == nil:
		add(true, "sends objects to %s, and to the Service %s as shipped", *present.Client.URL, describeService(desired.Client.Service))
	case describeService(desired.Client.Service) != describeService(present.Client.Service):
		add(true, "calls %s, and %s as shipped", describeService(present.Client.Service), describeService(desired.Client.Service))
	}
	if len(present.Client.CABundle) == 0 {
		add(true, "has no caBundle, so that the API server does not trust it")
	}
	if !sameRules(desired.Rules, present.Rules) {
		add(true, "has other rules than as shipped")
	}
	for _, change := range []struct {
		severe           bool
		desired, present map[string]any
	}{{true, desired.selecting, present.selecting}, {false, desired.further, present.further}} {
		var fields []string
		for name, value := range change.present {
			if !reflect.DeepEqual(change.desired[name], value) {
				fields = append(fields, name)
			}
		}
		if slices.Sort(fields); len(fields) > 0 {
			add(change.severe, "was changed in %s", strings.Join(fields, ", "))
		}
	}
	return found
}

// sameRules reports whether two lists have the same rules, in any order.
func sameRules(a, b []admissionv1.RuleWithOperations) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(rule admissionv1.RuleWithOperations) bool {
		return !slices.ContainsFunc(b, func(other admissionv1.RuleWithOperations) bool { return reflect.DeepEqual(rule, other) })
	})
}

// describeService returns the address that the API server calls.
func describeService(s *admissionv1.ServiceReference) string {
	if s == nil {
		return "no Service"
	}
	return fmt.Sprintf("%s/%s:%d%s", s.Namespace, s.Name, ptr.Deref(s.Port, 443), ptr.Deref(s.Path, ""))
}
