// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"sluice.dev/api/workloadkind"
)

// Guards invariant 4 of the design: a workload that its user stopped before the project expired has no mark of Sluice. The
// API server calls the webhook for its start, whatever the field or annotation is that stops its kind.
func TestEveryStartOfAWorkloadIsValidated(t *testing.T) {
	conditions := findWebhook(t, "restarts.sluice.dev").MatchConditions
	for _, kind := range workloadkind.All() {
		switch kind.StopAction.Method {
		case workloadkind.StopNever, workloadkind.StopByDeletion:
			continue
		}
		if kind.StopAction.Irreversible || kind.Group == workloadkind.GroupKueue || kind.Kind == "CronJob" {
			continue // its Jobs are validated
		}
		was, is := newWorkload(kind, "w", "program", false), newWorkload(kind, "w", "program", true)
		if !matches(t, conditions, anna, kind, was, is) {
			t.Errorf("%s: its start is not validated", kind.Kind)
		}
		if matches(t, conditions, anna, kind, is, is) {
			t.Errorf("%s: an update without a change is validated", kind.Kind)
		}
	}
}

// Guards invariant 4 of the design: a pod whose label is removed loses its controller, which creates another one.
func TestLabelOfAControlledPodInClosedProject(t *testing.T) {
	conditions, kind := findWebhook(t, "restarts.sluice.dev").MatchConditions, kindByName(t, "Pod")
	pod := func(labels map[string]string, owned, gpu bool) *unstructured.Unstructured {
		u := newWorkload(kind, "w", "program", true)
		u.SetLabels(labels)
		if owned {
			withController(u, "apps/v1", "ReplicaSet", "web-1")
		}
		if !gpu {
			setPath(u.Object, []string{"spec", "containers"}, []any{map[string]any{"name": "main"}})
		}
		return u
	}
	type labels = map[string]string
	for name, tc := range map[string]struct {
		was, is        *unstructured.Unstructured
		user           string
		called, denied bool
	}{
		"removed":         {pod(labels{"app": "web"}, true, true), pod(nil, true, true), anna, true, true},
		"changed":         {pod(labels{"app": "web"}, true, true), pod(labels{"app": "x"}, true, true), anna, true, true},
		"added":           {pod(labels{"app": "web"}, true, true), pod(labels{"app": "web", "mine": "1"}, true, true), anna, false, false},
		"without GPUs":    {pod(labels{"app": "web"}, true, false), pod(nil, true, false), anna, true, false},
		"by a controller": {pod(labels{"app": "web"}, true, true), pod(nil, true, true), controllerManager, true, false},
		"of a bare pod":   {pod(labels{"app": "web"}, false, true), pod(nil, false, true), anna, false, false},
	} {
		if called := matches(t, conditions, tc.user, kind, tc.was, tc.is); called != tc.called {
			t.Errorf("%s: the webhook is called: %v", name, called)
		}
		if response := validateChange(t, newClosedValidator(t), tc.user, kind, tc.was, tc.is); response.Allowed == tc.denied {
			t.Errorf("%s: allowed %v: %s", name, response.Allowed, response.Result.Message)
		}
		if open := validateChange(t, newValidator(t), tc.user, kind, tc.was, tc.is); !open.Allowed {
			t.Errorf("%s: denied in an open project: %s", name, open.Result.Message)
		}
	}
}

// matches reports whether the API server calls a webhook with these conditions for an update.
func matches(
	t *testing.T, conditions []admissionv1.MatchCondition, username string, kind workloadkind.Kind, was, is *unstructured.Unstructured,
) bool {
	t.Helper()
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	var accessors []cel.ExpressionAccessor
	for i := range conditions {
		accessors = append(accessors, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	fail := admissionv1.Fail
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{HasAuthorizer: true},
		environment.StoredExpressions), &fail, "webhook", "validating", "restarts")
	version := kind.WithVersion("v1")
	attributes := &admission.VersionedAttributes{VersionedKind: version}
	attributes.VersionedObject.Set(is)
	attributes.VersionedOldObject.Set(was)
	attributes.Attributes = admission.NewAttributesRecord(is, was, version, ns, is.GetName(),
		schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: kind.Resource}, "", admission.Update, nil, false,
		&user.DefaultInfo{Name: username})
	result := matcher.Match(t.Context(), attributes, nil, nil)
	if result.Error != nil {
		t.Fatalf("%s: %v", kind.Kind, result.Error)
	}
	return result.Matches
}
