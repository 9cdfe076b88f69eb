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
