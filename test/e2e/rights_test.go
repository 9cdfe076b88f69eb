// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// neutral is a namespace in which no component has a right of its own.
const neutral = "default"

// Each component may do what the written list says, and no more.
func TestRightsAreThoseOfTheList(t *testing.T) {
	raw, err := os.ReadFile("testdata/rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]map[string][]string
	if err := yaml.UnmarshalStrict(raw, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 2 {
		t.Fatalf("the list has %d components", len(list))
	}
	nobody := rightsOf(t, "system:serviceaccount:default:nobody", neutral)
	for account, byNamespace := range list {
		t.Run(account, func(t *testing.T) {
			user := "system:serviceaccount:" + strings.ReplaceAll(account, "/", ":")
			everywhere := subtract(rightsOf(t, user, neutral), nobody)
			compare(t, "cluster-wide", byNamespace[""], everywhere)
			for _, namespace := range namespacesOf(t) {
				if namespace == neutral {
					continue
				}
				here := subtract(rightsOf(t, user, namespace), append(nobody, everywhere...))
				compare(t, "in "+namespace, byNamespace[namespace], here)
			}
		})
	}
}

// Spot checks, asked the other way round: what none of them may do.
func TestRightsThatNobodyHas(t *testing.T) {
	forbidden := []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets"},
		{Verb: "list", Resource: "secrets", Namespace: "thesis-mueller"},
		{Verb: "create", Resource: "pods", Namespace: "thesis-mueller"},
		{Verb: "update", Resource: "nodes"},
		{Verb: "create", Group: "sluice.dev", Resource: "projects"},
		{Verb: "delete", Group: "sluice.dev", Resource: "projects"},
		{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		{Verb: "bind", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "cluster-admin"},
		{Verb: "bind", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "sluice:system-administrator"},
		{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "roles"},
		{Verb: "create", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "another"},
		{Verb: "delete", Resource: "persistentvolumeclaims", Namespace: "thesis-mueller"},
		{Verb: "impersonate", Resource: "users"},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "sluice-system"},
	}
	for _, user := range []string{"system:serviceaccount:sluice-system:webhook", "system:serviceaccount:sluice-system:lifecycle"} {
		for _, attributes := range forbidden {
			review, err := shared.native.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &attributes},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed {
				t.Errorf("%s may %s %s/%s: %s", user, attributes.Verb, attributes.Group, attributes.Resource, review.Status.Reason)
			}
		}
	}
}

// rightsOf asks the API server, as the user, what the user may do in a namespace.
func rightsOf(t *testing.T, user, namespace string) []string {
	t.Helper()
	config := rest.CopyConfig(shared.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	native, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := native.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string][]string{} // by resource
	for _, rule := range review.Status.ResourceRules {
		for _, resource := range resources(rule) {
			verbs[resource] = append(verbs[resource], rule.Verbs...)
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			verbs[url] = append(verbs[url], rule.Verbs...)
		}
	}
	var rights []string
	for resource, list := range verbs {
		slices.Sort(list)
		rights = append(rights, strings.Join(slices.Compact(list), ",")+" "+resource)
	}
	slices.Sort(rights)
	return rights
}

// resources are a rule's, each as resource.group/name.
func resources(rule authorizationv1.ResourceRule) []string {
	var list []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			text := resource
			if group != "" {
				text += "." + group
			}
			if len(rule.ResourceNames) == 0 {
				list = append(list, text)
			}
			for _, name := range rule.ResourceNames {
				list = append(list, text+"/"+name)
			}
		}
	}
	return list
}

func namespacesOf(t *testing.T) []string {
	t.Helper()
	list, err := shared.native.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func subtract(from, what []string) []string {
	return slices.DeleteFunc(slices.Clone(from), func(right string) bool { return slices.Contains(what, right) })
}

func compare(t *testing.T, where string, want, got []string) {
	t.Helper()
	want = slices.Clone(want)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		t.Errorf("%s (-list +cluster)\n%s", where, diff)
	}
}
