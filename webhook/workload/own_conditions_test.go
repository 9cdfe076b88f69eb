// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"sluice.dev/manifests"
)

// grants authorizes "verb resource" in sluice.dev.
type grants []string

func (g grants) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetAPIGroup() == "sluice.dev" && a.GetNamespace() == ns && slices.Contains(g, a.GetVerb()+" "+a.GetResource()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// webhookConditions returns the conditions of all webhooks, by name.
func webhookConditions(t *testing.T) map[string][]admissionv1.MatchCondition {
	t.Helper()
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]admissionv1.MatchCondition{}
	for _, object := range objects {
		if kind := object.GetKind(); kind != "ValidatingWebhookConfiguration" && kind != "MutatingWebhookConfiguration" {
			continue
		}
		var configuration admissionv1.MutatingWebhookConfiguration // the other has the same fields, as far as the test reads them
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configuration); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			all[object.GetKind()+" "+webhook.Name] = webhook.MatchConditions
		}
	}
	return all
}

// The API server calls the webhooks for own objects for the users whom they restrict, by its own evaluation. All others
// connect to pods and write Services while the webhook is down. Guards invariants 2 and 4 of the design.
func TestConditionsOfOwnObjects(t *testing.T) {
	const validating, mutating = "ValidatingWebhookConfiguration ", "MutatingWebhookConfiguration "
	l2 := grants{"own-only workloads", "own-only connections"}
	engineer := grants{"others workloads", "own-only connections"}
	l1 := grants{"others workloads", "others connections"}
	both := slices.Concat(l1, l2)
	service := func(selector string) string { return `{kind: Service, spec: {` + selector + `}}` }
	const options = `{kind: PodExecOptions, command: [sh]}`
	all := webhookConditions(t)
	for _, tc := range []struct {
		webhook, name, user, old, object string
		rights                           grants
		called                           bool
	}{
		{webhook: validating + "connections.sluice.dev", name: "L2", user: anna, object: options, rights: l2, called: true},
		{webhook: validating + "connections.sluice.dev", name: "ML engineer", user: anna, object: options, rights: engineer, called: true},
		{webhook: validating + "connections.sluice.dev", name: "ServiceAccount of L2", user: account, object: options, rights: l2, called: true},
		{webhook: validating + "connections.sluice.dev", name: "L1", user: anna, object: options, rights: l1},
		{webhook: validating + "connections.sluice.dev", name: "L1 and L2", user: anna, object: options, rights: both},
		{webhook: validating + "connections.sluice.dev", name: "cluster administrator", user: "admin", object: options, rights: both},
		{webhook: validating + "connections.sluice.dev", name: "another role", user: anna, object: options},
		{webhook: validating + "pod-creators.sluice.dev", name: "with the label", user: jobs, object: `{kind: Pod, metadata: {labels: {sluice.dev/creator: x}}, spec: {}}`, called: true},
		{webhook: validating + "pod-creators.sluice.dev", name: "without", user: jobs, object: `{kind: Pod, metadata: {labels: {app: x}}, spec: {}}`},
		{webhook: validating + "pod-creators.sluice.dev", name: "without labels", user: jobs, object: `{kind: Pod, metadata: {}, spec: {}}`},
		{webhook: validating + "pod-creators.sluice.dev", name: "required anti-affinity", user: jobs, object: `{kind: Pod, metadata: {}, spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: x}]}}}}`, called: true},
		{webhook: validating + "pod-creators.sluice.dev", name: "must spread", user: jobs, object: `{kind: Pod, metadata: {}, spec: {topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule}]}}`, called: true},
		{webhook: mutating + "own-services.sluice.dev", name: "L2", user: anna, object: service("selector: {app: x}"), rights: l2, called: true},
		{webhook: mutating + "own-services.sluice.dev", name: "L2 changes it", user: anna, old: service("selector: {app: x}"), object: service("selector: {app: y}"), rights: l2, called: true},
		{webhook: mutating + "own-services.sluice.dev", name: "L2 adds it", user: anna, old: service(""), object: service("selector: {app: y}"), rights: l2, called: true},
		{webhook: mutating + "own-services.sluice.dev", name: "L2 changes another field", user: anna, old: service("selector: {app: x}"), object: service("selector: {app: x}, type: ClusterIP"), rights: l2},
		{webhook: mutating + "own-services.sluice.dev", name: "L2 without a selector", user: anna, object: service(""), rights: l2},
		{webhook: mutating + "own-services.sluice.dev", name: "L1", user: anna, object: service("selector: {app: x}"), rights: l1},
		{webhook: mutating + "own-services.sluice.dev", name: "ML engineer", user: anna, object: service("selector: {app: x}"), rights: engineer},
		{webhook: mutating + "creator-labels.sluice.dev", name: "without owner", user: anna, object: `{kind: Pod, metadata: {}}`, called: true},
		{webhook: mutating + "creator-labels.sluice.dev", name: "owner that is no controller", user: anna, object: `{kind: Pod, metadata: {ownerReferences: [{name: x}]}}`, called: true},
		{webhook: mutating + "creator-labels.sluice.dev", name: "with controller", user: jobs, object: `{kind: Pod, metadata: {ownerReferences: [{name: x}, {name: y, controller: true}]}}`},
		{webhook: mutating + "affinity.sluice.dev", name: "Spark", user: jobs, object: `{kind: Pod, metadata: {labels: {sparkoperator.k8s.io/launched-by-spark-operator: "true"}}, spec: {}}`, called: true},
		{webhook: mutating + "affinity.sluice.dev", name: "required anti-affinity", user: jobs, object: `{kind: Pod, spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: x}]}}}}`, called: true},
		{webhook: mutating + "affinity.sluice.dev", name: "preferred anti-affinity", user: jobs, object: `{kind: Pod, metadata: {}, spec: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1}], requiredDuringSchedulingIgnoredDuringExecution: []}}}}`},
		{webhook: mutating + "affinity.sluice.dev", name: "affinity", user: jobs, object: `{kind: Pod, metadata: {}, spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: x}]}}}}`},
		{webhook: mutating + "affinity.sluice.dev", name: "must spread", user: anna, object: `{kind: Pod, spec: {topologySpreadConstraints: [{whenUnsatisfiable: ScheduleAnyway}, {whenUnsatisfiable: DoNotSchedule}]}}`, called: true},
		{webhook: mutating + "affinity.sluice.dev", name: "should spread", user: anna, object: `{kind: Pod, metadata: {}, spec: {topologySpreadConstraints: [{whenUnsatisfiable: ScheduleAnyway}]}}`},
		{webhook: mutating + "affinity.sluice.dev", name: "neither", user: anna, object: `{kind: Pod, metadata: {}, spec: {affinity: {}}}`},
		{webhook: mutating + "objects.sluice.dev", name: "user", user: anna, object: `{kind: Secret}`, rights: l1, called: true},
		{webhook: mutating + "objects.sluice.dev", name: "ServiceAccount of L2", user: account, object: `{kind: Secret}`, rights: l2, called: true},
		{webhook: mutating + "objects.sluice.dev", name: "another ServiceAccount", user: account, object: `{kind: Secret}`},
		{webhook: mutating + "objects.sluice.dev", name: "controller", user: jobs, object: `{kind: ConfigMap}`},
	} {
		t.Run(tc.webhook+" "+tc.name, func(t *testing.T) {
			conditions := all[tc.webhook]
			if len(conditions) == 0 {
				t.Fatal("the webhook has no conditions")
			}
			if got := isCalled(t, conditions, tc.user, tc.old, tc.object, tc.rights); got != tc.called {
				t.Errorf("called: %v", got)
			}
		})
	}
}

// isCalled reports whether the API server calls a webhook with these conditions.
func isCalled(t *testing.T, conditions []admissionv1.MatchCondition, username, old, object string, rights grants) bool {
	t.Helper()
	decode := func(text string) runtime.Object {
		if text == "" {
			return nil
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		u.SetName("x")
		return u
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	var accessors []cel.ExpressionAccessor
	for i := range conditions {
		accessors = append(accessors, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	fail := admissionv1.Fail
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{HasAuthorizer: true},
		environment.StoredExpressions), &fail, "webhook", "admit", "own")
	was, is, operation := decode(old), decode(object), admission.Create
	if was != nil {
		operation = admission.Update
	}
	kind := is.GetObjectKind().GroupVersionKind()
	if kind.Kind == "PodExecOptions" {
		operation = admission.Connect
	}
	attributes := &admission.VersionedAttributes{VersionedKind: kind}
	attributes.VersionedObject.Set(is)
	attributes.VersionedOldObject.Set(was)
	attributes.Attributes = admission.NewAttributesRecord(is, was, kind, ns, "x", schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "",
		operation, nil, false, &user.DefaultInfo{Name: username})
	result := matcher.Match(t.Context(), attributes, nil, rights)
	if result.Error != nil {
		t.Fatal(result.Error)
	}
	return result.Matches
}
