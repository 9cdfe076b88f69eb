// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// projectWith returns a Project with annotations, and exceptions with these reasons unless they are empty.
func projectWith(annotations map[string]string, hold, exempt string) *v1alpha1.Project {
	p := &v1alpha1.Project{}
	p.Name, p.Annotations = "thesis", annotations
	if hold != "" {
		p.Spec.Hold = &v1alpha1.Exception{Reason: hold}
	}
	if exempt != "" {
		p.Spec.Exempt = &v1alpha1.Exception{Reason: exempt}
	}
	return p
}

// Invariant 11: what an object says about who set an exception is true, whatever its writer claims.
func TestExceptionAuthorsAreNotForged(t *testing.T) {
	const held, exempted = v1alpha1.HeldByAnnotation, v1alpha1.ExemptedByAnnotation
	type notes = map[string]string
	tests := map[string]struct {
		old, project *v1alpha1.Project
		want         notes
	}{
		"a new hold": {nil, projectWith(nil, "fire", ""), notes{held: "admin"}},
		"a new project with both, and claims": {
			nil, projectWith(notes{held: "other", exempted: "other", "note": "x"}, "fire", "course"),
			notes{held: "admin", exempted: "admin", "note": "x"},
		},
		"claims without an exception": {nil, projectWith(notes{held: "other", exempted: "other"}, "", ""), notes{}},
		"an unchanged hold keeps its author": {
			projectWith(notes{held: "first"}, "fire", ""), projectWith(notes{held: "forged"}, "fire", "course"),
			notes{held: "first", exempted: "admin"},
		},
		"an author that was removed": {projectWith(notes{held: "first"}, "fire", ""), projectWith(nil, "fire", ""), notes{held: "first"}},
		"another reason":             {projectWith(notes{held: "first"}, "fire", ""), projectWith(notes{held: "first"}, "flood", ""), notes{held: "admin"}},
		"the end of a hold":          {projectWith(notes{held: "first"}, "fire", ""), projectWith(notes{held: "first"}, "", ""), notes{}},
		"a hold from before": {
			projectWith(nil, "fire", ""), projectWith(notes{held: "forged"}, "fire", ""), notes{},
		},
		"nothing to do": {projectWith(nil, "", ""), projectWith(notes{"note": "x"}, "", ""), notes{"note": "x"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(tc.project)
			if err != nil {
				t.Fatal(err)
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
				UserInfo: authenticationv1.UserInfo{Username: "admin"},
			}}
			if tc.old != nil {
				request.Operation = admissionv1.Update
				if request.OldObject.Raw, err = json.Marshal(tc.old); err != nil {
					t.Fatal(err)
				}
			}
			response := ExceptionAuthors{}.Handle(t.Context(), request)
			if !response.Allowed {
				t.Fatalf("refused: %v", response.Result)
			}
			patched := raw
			if len(response.Patch) > 0 {
				patch, err := jsonpatch.DecodePatch(response.Patch)
				if err != nil {
					t.Fatal(err)
				}
				if patched, err = patch.Apply(raw); err != nil {
					t.Fatal(err)
				}
			}
			var got v1alpha1.Project
			if err := json.Unmarshal(patched, &got); err != nil {
				t.Fatal(err)
			}
			if got.Annotations == nil {
				got.Annotations = notes{}
			}
			if diff := cmp.Diff(tc.want, got.Annotations); diff != "" {
				t.Errorf("annotations differ (-want +got)\n%s", diff)
			}
			got.Annotations, tc.project.Annotations = nil, nil
			if diff := cmp.Diff(tc.project, &got); diff != "" {
				t.Errorf("the rest differs (-want +got)\n%s", diff)
			}
		})
	}
}

// The schema refuses a malformed exception, with the field and what is allowed. The API server applies it after the webhook.
func TestExceptionAuthorsLeaveMalformedExceptionsToTheSchema(t *testing.T) {
	for _, spec := range []string{`{"hold":"fire"}`, `{"exempt":{"reason":"fire","until":"31.12.2026"}}`, `{"hold":[]}`, `"x"`, `null`} {
		response := ExceptionAuthors{}.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: "admin"},
			Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"thesis"},"spec":` + spec + `}`)},
		}})
		if !response.Allowed {
			t.Errorf("%s: %v", spec, response.Result)
		}
	}
}

// A project without a spec is refused by the schema, not by an expression that cannot be evaluated.
func TestMatchConditionsOfExceptionAuthors(t *testing.T) {
	const hold = `{"spec":{"hold":{"reason":"fire"}}}`
	matcher := exceptionAuthorsMatcher(t)
	for name, tc := range map[string]struct {
		old, object string
		matches     bool
	}{
		"no spec":             {object: `{}`},
		"no exception":        {object: `{"spec":{}}`},
		"a hold":              {object: hold, matches: true},
		"an unchanged hold":   {old: hold, object: hold},
		"a new hold":          {old: `{"spec":{}}`, object: hold, matches: true},
		"the end of a hold":   {old: hold, object: `{"spec":{}}`, matches: true},
		"the spec is removed": {old: hold, object: `{}`, matches: true},
		"a claim":             {object: `{"metadata":{"annotations":{"sluice.dev/held-by":"x"}},"spec":{}}`, matches: true},
	} {
		attributes := &apiadmission.VersionedAttributes{}
		operation := apiadmission.Create
		if tc.old != "" {
			operation = apiadmission.Update
			attributes.VersionedOldObject.Set(decodeUnstructured(t, tc.old))
		}
		attributes.VersionedObject.Set(decodeUnstructured(t, tc.object))
		attributes.Attributes = apiadmission.NewAttributesRecord(nil, nil, v1alpha1.GroupVersion.WithKind("Project"), "", "thesis",
			v1alpha1.GroupVersion.WithResource("projects"), "", operation, nil, false, &user.DefaultInfo{Name: "admin"})
		result := matcher.Match(t.Context(), attributes, nil, nil)
		if result.Error != nil || result.Matches != tc.matches {
			t.Errorf("%s: %v, %v", name, result.Matches, result.Error)
		}
	}
}

func decodeUnstructured(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "thesis"}}}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// exceptionAuthorsMatcher evaluates the match conditions as the API server does.
func exceptionAuthorsMatcher(t *testing.T) matchconditions.Matcher {
	t.Helper()
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		var configuration registrationv1.MutatingWebhookConfiguration
		if object.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configuration); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			if webhook.Name != "exception-authors.sluice.dev" {
				continue
			}
			var conditions []cel.ExpressionAccessor
			for i := range webhook.MatchConditions {
				conditions = append(conditions, (*matchconditions.MatchCondition)(&webhook.MatchConditions[i]))
			}
			compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
			return matchconditions.NewMatcher(compiler.CompileCondition(conditions, cel.OptionalVariableDeclarations{HasAuthorizer: true},
				environment.StoredExpressions), webhook.FailurePolicy, "webhook", "mutating", webhook.Name)
		}
	}
	t.Fatal("the webhook is not in the manifests")
	return nil
}
