// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/workloadkind"
)

// An L2 researcher changes and deletes only own Services, ConfigMaps, Secrets and volume claims, and no user writes another's
// name on one. Guards invariant 4 of the design.
func TestOwnObjects(t *testing.T) {
	l2, l1 := []string{"own-only workloads.sluice.dev"}, []string{"others workloads.sluice.dev"}
	for _, kind := range []struct{ kind, resource string }{
		{"ConfigMap", "configmaps"}, {"PersistentVolumeClaim", "persistentvolumeclaims"}, {"Secret", "secrets"}, {"Service", "services"},
	} {
		object := func(annotations string) string {
			return "{apiVersion: v1, kind: " + kind.kind + ", metadata: {name: x, annotations: {" + annotations + "}}, spec: {}}"
		}
		byAnna, byBob := "sluice.dev/created-by: "+anna, "sluice.dev/created-by: bob@example.org"
		for name, tc := range map[string]struct {
			user        string
			old, object string
			rights      []string
			want        string
		}{
			"created":                               {rights: l2, object: object(byAnna)},
			"created without a creator":             {rights: l2, object: object("")},
			"created for another":                   {rights: l2, object: object(byBob), want: "names the creator, and that is " + anna},
			"created for another by L1":             {rights: l1, object: object(byBob), want: "names the creator, and that is " + anna},
			"copied by a controller":                {user: replicaSet, object: object(byBob)},
			"own changed":                           {rights: l2, old: object(byAnna), object: object(byAnna + ", a: b")},
			"own deleted":                           {rights: l2, old: object(byAnna)},
			"own given away":                        {rights: l2, old: object(byAnna), object: object(byBob), want: "does not change afterwards"},
			"another's changed":                     {rights: l2, old: object(byBob), object: object(byBob + ", a: b"), want: "was created by bob@example.org, and an L2 researcher"},
			"another's deleted":                     {rights: l2, old: object(byBob), want: "ask its creator, or an L1 researcher or editor"},
			"another's claimed":                     {rights: l2, old: object(byBob), object: object(byAnna), want: "does not change afterwards"},
			"unknown changed":                       {rights: l2, old: object(""), object: object("a: b"), want: "was created by an unknown user"},
			"unknown claimed":                       {rights: l2, old: object(""), object: object(byAnna), want: "does not change afterwards"},
			"another's changed by L1":               {rights: l1, old: object(byBob), object: object(byBob + ", a: b")},
			"another's deleted by L1":               {rights: l1, old: object(byBob)},
			"another's changed by L1 who is L2":     {rights: append(l1, l2...), old: object(byBob), object: object(byBob + ", a: b")},
			"another's deleted by an administrator": {old: object(byBob)},
			"another's deleted by a controller":     {user: replicaSet, rights: l2, old: object(byBob)},
		} {
			t.Run(kind.kind+" "+name, func(t *testing.T) {
				request := admissionRequest{user: tc.user, resource: kind.resource, old: tc.old, object: tc.object, rights: tc.rights}
				messages := strings.Join(request.deny(t), "\n")
				if (messages != "") != (tc.want != "") || !strings.Contains(messages, tc.want) {
					t.Errorf("refused with %q, want %q", messages, tc.want)
				}
			})
		}
	}
}

// Kubernetes writes a token that does not expire into a Secret of this type, and its creator can mount it. So it takes the
// right to create tokens of the ServiceAccount, which no role of a project has. Guards invariant 4 of the design.
func TestSecretsWithTokens(t *testing.T) {
	l2, editor := []string{"own-only workloads.sluice.dev"}, []string{"others workloads.sluice.dev"}
	secret := func(fields string) string { return "{apiVersion: v1, kind: Secret, metadata: {name: x" + fields }
	token := secret(", annotations: {kubernetes.io/service-account.name: default}}, type: kubernetes.io/service-account-token}")
	const want = "a Secret of the type kubernetes.io/service-account-token gets a token of ServiceAccount default that does not expire"
	for name, tc := range map[string]struct {
		user        string
		old, object string
		rights      []string
		want        string
	}{
		"of L2":                         {object: token, rights: l2, want: want},
		"of an editor":                  {object: token, rights: editor, want: want},
		"of a ServiceAccount":           {user: "system:serviceaccount:lab:default", object: token, want: want},
		"of no ServiceAccount":          {object: secret("}, type: kubernetes.io/service-account-token}"), rights: l2, want: "ServiceAccount (none)"},
		"of who may create tokens":      {object: token, rights: []string{"create serviceaccounts."}},
		"of a controller":               {user: replicaSet, object: token},
		"with a password":               {object: secret("}, type: kubernetes.io/basic-auth}"), rights: l2},
		"without a type":                {object: secret("}}"), rights: l2},
		"another's changed by an admin": {old: token, object: token},
	} {
		t.Run(name, func(t *testing.T) {
			request := admissionRequest{user: tc.user, resource: "secrets", old: tc.old, object: tc.object, rights: tc.rights}
			messages := strings.Join(request.deny(t), "\n")
			if (messages != "") != (tc.want != "") || !strings.Contains(messages, tc.want) {
				t.Errorf("refused with %q, want %q", messages, tc.want)
			}
		})
	}
}

// A Service of an L2 researcher selects by the label of its creator, if by any; those of others may. Guards invariant 4
// of the design.
func TestServiceSelectors(t *testing.T) {
	l2, l1 := []string{"own-only workloads.sluice.dev"}, []string{"others workloads.sluice.dev"}
	service := func(selector string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: x, annotations: {sluice.dev/created-by: " + anna + "}}, spec: {type: ClusterIP" + selector + "}}"
	}
	const plain, labeled, managed = ", selector: {app: x}", ", selector: {app: x, sluice.dev/creator: abc}", ", selector: {app: x, sluice.dev/project: lab}"
	for name, tc := range map[string]struct {
		old, object string
		rights      []string
		want        string
	}{
		"with the label":             {object: service(labeled), rights: l2},
		"without a selector":         {object: service(""), rights: l2},
		"without the label":          {object: service(plain), rights: l2, want: "selects only pods of that user"},
		"the label removed":          {old: service(labeled), object: service(plain), rights: l2, want: "selects only pods of that user"},
		"another field changed":      {old: service(plain), object: service(plain + ", sessionAffinity: ClientIP"), rights: l2},
		"with the project's label":   {object: service(managed), rights: l2, want: "pods of other users have this label too"},
		"of L1":                      {object: service(plain), rights: l1},
		"of L1 who is L2":            {object: service(plain), rights: append(l1, l2...)},
		"of L1 with the label":       {object: service(labeled), rights: l1},
		"of L1, the label removed":   {old: service(labeled), object: service(plain), rights: l1},
		"of L1, the project's label": {object: service(managed), rights: l1, want: "pods of other users have this label too"},
	} {
		t.Run(name, func(t *testing.T) {
			request := admissionRequest{resource: "services", old: tc.old, object: tc.object, rights: tc.rights}
			messages := strings.Join(request.deny(t), "\n")
			if (messages != "") != (tc.want != "") || !strings.Contains(messages, tc.want) {
				t.Errorf("refused with %q, want %q", messages, tc.want)
			}
		})
	}
	deployment := admissionRequest{resource: "deployments.apps", rights: l2, object: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, " +
		"spec: {selector: {matchLabels: {sluice.dev/creator: abc}}}}"}
	if messages := strings.Join(deployment.deny(t), "\n"); !strings.Contains(messages, "pods of other users have this label too") {
		t.Errorf("a Deployment that selects by the label: %q", messages)
	}
}

// No user changes who created an object of a known kind: the webhook for connections follows the owners of a pod, and believes
// what they say. Guards invariant 4 of the design.
func TestCreatorsOfKnownKindsAreProtected(t *testing.T) {
	policies := loadSet(t, false).policies
	for _, kind := range workloadkind.All() {
		policy := policies["sluice-workload-metadata"]
		operations := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
		if kind.GroupKind == (schema.GroupKind{Kind: "Pod"}) { // whose webhook, which fails closed, records it
			policy, operations = policies["sluice-managed-metadata"], operations[1:]
		}
		for _, operation := range operations {
			if !slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
				return slices.Contains(rule.APIGroups, kind.Group) && slices.Contains(rule.Resources, kind.Resource) && slices.Contains(rule.Operations, operation)
			}) {
				t.Errorf("%s does not match %s of %s", policy.Name, operation, kind.GroupKind)
			}
		}
	}
}
