// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// protectedNamespaces are those whose pods start without Sluice.
var protectedNamespaces = []string{metav1.NamespaceSystem, v1alpha1.AgentNamespace, v1alpha1.SystemNamespace}

// onlySluicesKinds reports whether rules match objects of Sluice only, which no pod needs to start.
func onlySluicesKinds(rules []admissionv1.RuleWithOperations) bool {
	return !slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
		return !slices.Equal(r.APIGroups, []string{v1alpha1.Group})
	})
}

// matchesNamespace reports whether a selector matches a namespace with these labels beside its name.
func matchesNamespace(t *testing.T, selector *metav1.LabelSelector, name string, further labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return selector == nil || s.Matches(labels.Merge(further, labels.Set{corev1.LabelMetadataName: name}))
}

// No webhook applies to kube-system or to Sluice's own namespaces, even if a mistake made them a project's: Sluice
// and what it needs start without Sluice.
func TestWebhooksLeaveOutProtectedNamespaces(t *testing.T) {
	type webhook struct {
		name     string
		selector *metav1.LabelSelector
		rules    []admissionv1.RuleWithOperations
	}
	var webhooks []webhook
	for _, object := range buildObjects(t, manifests.Production) {
		switch object.GetKind() {
		case "MutatingWebhookConfiguration":
			var configuration admissionv1.MutatingWebhookConfiguration
			decode(t, object, &configuration)
			for _, w := range configuration.Webhooks {
				webhooks = append(webhooks, webhook{w.Name, w.NamespaceSelector, w.Rules})
			}
		case "ValidatingWebhookConfiguration":
			var configuration admissionv1.ValidatingWebhookConfiguration
			decode(t, object, &configuration)
			for _, w := range configuration.Webhooks {
				webhooks = append(webhooks, webhook{w.Name, w.NamespaceSelector, w.Rules})
			}
		}
	}
	asProject := labels.Set{v1alpha1.LabelProject: "x", v1alpha1.LabelQueued: "true"}
	selecting := 0
	for _, w := range webhooks {
		if onlySluicesKinds(w.rules) {
			continue
		}
		selecting++
		for _, namespace := range protectedNamespaces {
			if matchesNamespace(t, w.selector, namespace, asProject) {
				t.Errorf("%s applies to %s if it has the label of a project", w.name, namespace)
			}
		}
		if !matchesNamespace(t, w.selector, "thesis", asProject) {
			t.Errorf("%s does not apply to a project", w.name)
		}
		if matchesNamespace(t, w.selector, "other", nil) {
			t.Errorf("%s applies to namespaces without a project", w.name)
		}
	}
	if selecting < 10 {
		t.Errorf("only %d of %d webhooks were checked", selecting, len(webhooks))
	}
}

// startingKinds are the kinds whose objects the cluster writes to start pods of Sluice.
var startingKinds = []string{"pods", "deployments", "daemonsets", "replicasets", "leases", "configmaps", "secrets", "serviceaccounts", "events"}

// An admission policy of the API server that applies to kube-system or to Sluice's own namespaces never needs the
// parameters that lifecycle creates: without them the pods of Sluice start all the same.
func TestAdmissionPoliciesNeedNoSluiceForItsPods(t *testing.T) {
	policies, bindings := admissionPolicies(t)
	applying := 0
	for _, policy := range policies {
		matched := policy.Spec.MatchConstraints
		starts := slices.ContainsFunc(matched.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
			return slices.ContainsFunc(r.Resources, func(resource string) bool {
				kind, _, _ := strings.Cut(resource, "/")
				return kind == "*" || slices.Contains(startingKinds, kind)
			})
		})
		applies := slices.ContainsFunc(protectedNamespaces, func(name string) bool {
			return matchesNamespace(t, matched.NamespaceSelector, name, nil)
		})
		if !starts || !applies || policy.Spec.ParamKind == nil {
			continue
		}
		applying++
		if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionv1.Ignore {
			t.Errorf("%s refuses pods of Sluice if the kind of its parameters is missing", policy.Name)
		}
		for _, binding := range bindings {
			if binding.Spec.PolicyName == policy.Name && *binding.Spec.ParamRef.ParameterNotFoundAction != admissionv1.AllowAction {
				t.Errorf("%s refuses pods of Sluice without parameters", binding.Name)
			}
		}
	}
	if applying == 0 {
		t.Error("no policy was checked")
	}
}

// admissionPolicies returns the policies of an installation: lifecycle applies those in base/admission/policies.
func admissionPolicies(t *testing.T) (policies []admissionv1.ValidatingAdmissionPolicy, bindings []admissionv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	files, err := fs.Glob(manifests.Files, "base/admission/policies/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "base/admission/notices.yaml", "agent/admission.yaml") {
		content, err := fs.ReadFile(manifests.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(content), "\n---\n") {
			var kind metav1.TypeMeta
			if err := utilyaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatal(err)
			}
			var policy admissionv1.ValidatingAdmissionPolicy
			var binding admissionv1.ValidatingAdmissionPolicyBinding
			switch kind.Kind {
			case "ValidatingAdmissionPolicy":
				err = yaml.UnmarshalStrict([]byte(document), &policy)
				policies = append(policies, policy)
			case "ValidatingAdmissionPolicyBinding":
				err = yaml.UnmarshalStrict([]byte(document), &binding)
				bindings = append(bindings, binding)
			default:
				t.Fatalf("%s: the kind %s is unknown here", file, kind.Kind)
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	return policies, bindings
}
