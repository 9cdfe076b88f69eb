// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

// besideOthers checks a policy in this process, beside the policies of the environment.
type besideOthers struct{}

func (besideOthers) Check(_ context.Context, source engine.Source, environment check.Environment) (check.Result, error) {
	var others []engine.Source
	for _, other := range environment.Policies {
		if !other.BuiltIn {
			others = append(others, other)
		}
	}
	return check.Check(source, others...), nil
}

func newLibrary(name, rego string) *v1alpha1.Policy {
	return newPolicy(rego, func(p *v1alpha1.Policy) { p.Name, p.Spec.Type = name, v1alpha1.PolicyTypeLibrary })
}

const (
	library  = "package lib.registries\n\nallowed(image) := startswith(image, \"a/\")\n"
	importer = "package p\n\nimport data.lib.registries\n\ndeny contains \"x\" if registries.allowed(input.object.spec.containers[0].image)\n"
)

func validatorWith(t *testing.T, objects ...client.Object) *Validator {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return &Validator{Cached: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), Checker: besideOthers{}}
}

// A library with which a policy would not compile is refused, with the policy and its line; so is the deletion of one that a
// policy imports.
func TestLibrariesOfImporters(t *testing.T) {
	stored := newLibrary("registries", library)
	v := validatorWith(t, stored, newPolicy(importer))
	changed := newLibrary("registries", strings.ReplaceAll(library, "allowed", "permitted"))
	_, err := v.ValidateUpdate(t.Context(), stored, changed)
	const broken = "spec: Invalid value: policy p does not compile with this version: p:5:22: undefined function data.lib.registries.allowed"
	if err == nil || !strings.Contains(err.Error(), broken) {
		t.Errorf("a breaking version: %v\nwant %s", err, broken)
	}
	compatible := newLibrary("registries", library+"\npermitted(image) := allowed(image)\n")
	if _, err := v.ValidateUpdate(t.Context(), stored, compatible); err != nil {
		t.Errorf("a compatible version: %v", err)
	}
	_, err = v.ValidateDelete(t.Context(), stored)
	if want := "the library is imported by p: change or delete these first"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the deletion: %v", err)
	}
	if _, err := v.ValidateDelete(t.Context(), newPolicy(importer)); err != nil {
		t.Errorf("the deletion of the importer: %v", err)
	}
	if _, err := validatorWith(t, stored).ValidateDelete(t.Context(), stored); err != nil {
		t.Errorf("the deletion without an importer: %v", err)
	}
}

// A policy that imports a library that does not exist is refused, after a moment in which the cache may see it.
func TestMissingLibraryIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := validatorWith(t)
		_, err := v.ValidateCreate(t.Context(), newPolicy(importer))
		const missing = "spec.rego:5:22: Invalid value: data.lib.registries.allowed does not exist: no library has this package; apply the library first"
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Fatalf("error %v\nwant %s", err, missing)
		}
		writer, ok := v.Cached.(client.Client)
		if !ok {
			t.Fatal("the fake client is no client")
		}
		created := make(chan error, 1)
		time.AfterFunc(200*time.Millisecond, func() { created <- writer.Create(context.Background(), newLibrary("registries", library)) })
		if _, err := v.ValidateCreate(t.Context(), newPolicy(importer)); err != nil {
			t.Error(err)
		}
		if err := <-created; err != nil {
			t.Fatal(err)
		}
	})
}

// fixedClock is a policy time that does not pass.
type fixedClock struct{ policytime.Clock }

func (fixedClock) Now() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// A new exemption ends within 366 days. One that has ended, or that was accepted before, is no error.
func TestEndsOfExemptions(t *testing.T) {
	until := func(year, month, day int, projects ...string) *v1alpha1.Policy {
		return newPolicy(goodRego, func(p *v1alpha1.Policy) {
			p.Spec.Exemptions = []v1alpha1.PolicyExemption{{
				Projects: projects, Reason: "a", Until: metav1.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC),
			}}
		})
	}
	v := validatorWith(t, &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}})
	v.Clock = fixedClock{}
	for name, tt := range map[string]struct {
		before, policy *v1alpha1.Policy
		err, warning   string
	}{
		"in time":      {newPolicy(goodRego), until(2027, 1, 2, "thesis"), "", ""},
		"too late":     {newPolicy(goodRego), until(2027, 1, 3, "thesis"), "spec.exemptions[0].until: Invalid value: \"2027-01-03T00:00:00Z\": must not be after 2027-01-02T00:00:00Z, in 366 days", ""},
		"as before":    {until(2028, 1, 1, "thesis"), func() *v1alpha1.Policy { p := until(2028, 1, 1, "thesis"); p.Spec.Rego += "\n"; return p }(), "", ""},
		"ended":        {newPolicy(goodRego), until(2025, 12, 31, "thesis"), "", "spec.exemptions[0].until: the exemption ended on 2025-12-31T00:00:00Z; remove it"},
		"of no one":    {newPolicy(goodRego), until(2026, 2, 1, "thesis", "nobody"), "", "spec.exemptions[0].projects[1]: there is no project nobody"},
		"of a mirror":  {newPolicy("x", builtIn("core.limits", "{}")), func() *v1alpha1.Policy { p := until(2026, 2, 1, "thesis"); builtIn("core.limits", "{}")(p); return p }(), "spec.exemptions: Forbidden: no object is exempted from a built-in policy", ""},
		"an exclusion": {newPolicy(goodRego), newPolicy(goodRego, func(p *v1alpha1.Policy) { p.Spec.Match.Exclude.Departments = []string{"gone"} }), "", "spec.match.exclude.departments[0]: there is no department gone"},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, err := v.ValidateUpdate(t.Context(), tt.before, tt.policy)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if got := strings.Join(warnings, "; "); got != tt.warning {
				t.Errorf("warnings %q, want %q", got, tt.warning)
			}
		})
	}
}
