// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

// checkerFunc is a Checker.
type checkerFunc func(engine.Source) (check.Result, error)

func (f checkerFunc) Check(_ context.Context, source engine.Source, _ check.Environment) (check.Result, error) {
	return f(source)
}

// checkHere checks a policy in this process.
func checkHere(source engine.Source) (check.Result, error) { return check.Check(source), nil }

func newValidator(t *testing.T, checker checkerFunc) *Validator {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}},
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
	).Build()
	return &Validator{Cached: c, Checker: checker}
}

func newPolicy(rego string, change ...func(*v1alpha1.Policy)) *v1alpha1.Policy {
	policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.PolicySpec{Rego: rego}}
	for _, c := range change {
		c(policy)
	}
	return policy
}

func builtIn(name, parameters string) func(*v1alpha1.Policy) {
	return func(policy *v1alpha1.Policy) {
		policy.Name, policy.Labels = name, map[string]string{v1alpha1.LabelBuiltIn: "true"}
		policy.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(parameters)}
	}
}

const goodRego = "package p\n\ndeny contains \"x\" if input.workload.gpus > 1\n"

// A policy that could not be in force is refused when it is applied, with the place. Guards
// invariant 11 of the design.
func TestInvalidPoliciesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		policy *v1alpha1.Policy
		errors []string
	}{
		"compile error": {newPolicy("package p\n\ndeny contains \"x\" if {\n\tinput.objekt\n}\n"), []string{
			"spec.rego:4:2: Invalid value: input.objekt does not exist; input has review, object",
		}},
		"parse error":   {newPolicy("package p\n\ndeny contains {\n"), []string{"spec.rego:"}},
		"unknown field": {newPolicy("package p\ndeny contains \"x\" if input.workload.gpu > 1\n"), []string{"spec.rego:2:22: Invalid value: input.workload.gpu does not exist; did you mean gpus?"}},
		"kind": {newPolicy(goodRego, func(p *v1alpha1.Policy) { p.Spec.Match.Kinds = []string{"Deployment.apps"} }), []string{
			"spec.match.kinds[0]: Invalid value: policies are never evaluated for Deployment.apps",
		}},
		"parameters": {newPolicy(goodRego, func(p *v1alpha1.Policy) {
			p.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"a": "x"}`)}
			p.Spec.ParametersSchema = &apiextensionsv1.JSON{Raw: []byte(`{"type": "object", "properties": {"a": {"type": "integer"}}}`)}
		}), []string{`spec.parameters.a: Invalid value: must be of type integer: "string"`}},
		"name of a built-in policy": {newPolicy(goodRego, func(p *v1alpha1.Policy) { p.Name = "core.gpu" }), []string{"metadata.name: Forbidden: a built-in policy has this name"}},
		"label of a mirror":         {newPolicy(goodRego, builtIn("mine", "{}")), []string{"metadata.labels[sluice.dev/built-in]: Forbidden"}},
		"a mirror's schema": {newPolicy("x", builtIn("core.limits", `{}`), func(p *v1alpha1.Policy) {
			p.Spec.ParametersSchema = &apiextensionsv1.JSON{Raw: []byte(`{"type": "object"}`)}
		}), []string{"spec.parametersSchema: Forbidden"}},
		"a mirror's parameters": {newPolicy("x", builtIn("core.limits", `{"minimumGraceSeconds": "soon"}`)), []string{
			`spec.parameters.minimumGraceSeconds: Invalid value: "soon": must be a whole number of seconds from 1 to 86400`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newValidator(t, checkHere).ValidateCreate(t.Context(), tt.policy)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, text := range tt.errors {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v\ndoes not contain %q", err, text)
				}
			}
		})
	}
}

// A valid policy is accepted, with warnings of names that do not exist and of fields that the
// object does not have.
func TestAcceptedPolicyHasWarnings(t *testing.T) {
	policy := newPolicy("package p\ndeny contains \"x\" if input.object.spec.nodename\n", func(p *v1alpha1.Policy) {
		p.Spec.Match = v1alpha1.PolicyMatch{Projects: []string{"thesis", "thesys"}, Departments: []string{"students", "staff"}}
	})
	warnings, err := newValidator(t, checkHere).ValidateCreate(t.Context(), policy)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) == 3 {
		warnings[0], _, _ = strings.Cut(warnings[0], "?")
	}
	want := admission.Warnings{
		"spec.rego:2:22: input.object.spec.nodename does not exist; did you mean nodeName",
		"spec.match.projects[1]: there is no project thesys",
		"spec.match.departments[1]: there is no department staff",
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An administrator can always label or delete a policy of an earlier version, and a check that
// cannot run refuses nothing.
func TestChecksThatRefuseNothing(t *testing.T) {
	broken := newValidator(t, func(engine.Source) (check.Result, error) { return check.Result{}, errors.New("no process") })
	warnings, err := broken.ValidateCreate(t.Context(), newPolicy(goodRego))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "the policy was not checked: no process") {
		t.Errorf("warnings %v, error %v", warnings, err)
	}
	old, labeled := newPolicy("package"), newPolicy("package", func(p *v1alpha1.Policy) { p.Labels = map[string]string{"team": "a"} })
	if warnings, err := newValidator(t, checkHere).ValidateUpdate(t.Context(), old, labeled); err != nil || len(warnings) > 0 {
		t.Errorf("warnings %v, error %v", warnings, err)
	}
	if _, err := newValidator(t, checkHere).ValidateUpdate(t.Context(), old, newPolicy(goodRego)); err != nil {
		t.Errorf("the mended policy: %v", err)
	}
	if _, err := newValidator(t, checkHere).ValidateCreate(t.Context(), newPolicy("x", builtIn("core.limits", `{"minimumGraceSeconds": 60}`))); err != nil {
		t.Errorf("valid parameters of a mirror: %v", err)
	}
}

// A policy that reads data that does not exist is accepted with a warning: the data may be created later.
func TestMissingDataIsAWarning(t *testing.T) {
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := engine.NewConfigData("known", map[string]any{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	e.UpdateData(engine.NewData([]engine.ConfigData{config}, nil))
	v := newValidator(t, checkHere)
	v.Policies = e
	warnings, err := v.ValidateCreate(t.Context(), newPolicy("package p\ndeny contains \"x\" if { data.config.known.a; data.config.other.a; data.objects.Service }\n"))
	if err != nil {
		t.Fatal(err)
	}
	const fails = "; until then the policy fails, and in Deny refuses every object that it matches"
	want := admission.Warnings{
		"data.config.other does not exist" + fails,
		"data.objects.Service does not exist: spec.policyData of the AdmissionParameters does not list the kind" + fails,
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
