// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
)

// environmentRecorder checks a policy in this process, for as long as it takes, and records the environment.
type environmentRecorder struct{ last check.Environment }

func (r *environmentRecorder) Check(ctx context.Context, source engine.Source, environment check.Environment) (check.Result, error) {
	r.last = environment
	warnings, err := check.Conflicts(context.WithoutCancel(ctx), source, environment)
	return check.Result{Warnings: warnings}, err
}

// The policy is evaluated with the policies in force, in the projects that it matches. A conflict is a
// warning, since a policy may be meant for objects that the other does not match. Guards invariant 11
// of the design.
func TestConflictIsAWarning(t *testing.T) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	project := func(name, department string) *v1alpha1.Project {
		return &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{
			Department: department, NodePools: []v1alpha1.PoolQuota{{Name: "dgx"}, {Name: "missing"}},
		}}
	}
	limits := newPolicy("x", builtIn("core.limits", `{"minimumGraceSeconds": 60}`))
	theirs := newPolicy("package q\n\noverrides := {\"spec\": {\"runtimeClassName\": \"b\"}}\n", func(p *v1alpha1.Policy) { p.Name = "theirs" })
	theirs.Spec.ParametersSchema = &apiextensionsv1.JSON{Raw: []byte(`{"type": "object"}`)}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		project("d", "students"), project("c", "students"), project("b", "students"), project("a", "students"), project("other", "staff"),
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
		&v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Spec: v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKueue}},
		limits, theirs,
	).Build()
	for name, tt := range map[string]struct {
		match   v1alpha1.PolicyMatch
		tenants []string
	}{
		"all":          {tenants: []string{"a", "b", "c"}},
		"a department": {v1alpha1.PolicyMatch{Departments: []string{"staff"}}, []string{"other"}},
		"projects":     {v1alpha1.PolicyMatch{Projects: []string{"d", "other", "none"}}, []string{"d", "other"}},
		"none":         {v1alpha1.PolicyMatch{Projects: []string{"none"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := &environmentRecorder{}
			mine := newPolicy("package p\n\noverrides := {\"spec\": {\"runtimeClassName\": \"a\"}}\n", func(p *v1alpha1.Policy) { p.Spec.Match = tt.match })
			warnings, err := (&Validator{Cached: c, Checker: recorder}).ValidateCreate(t.Context(), mine)
			if err != nil || len(warnings) == 0 || !strings.Contains(warnings[0], `policy p sets "a", policy theirs sets "b"`) {
				t.Errorf("warnings %q, error %v", warnings, err)
			}
			var tenants []string
			for _, tenant := range recorder.last.Tenants {
				tenants = append(tenants, tenant.Project)
				if diff := cmp.Diff([]v1alpha1.Scheduler{v1alpha1.SchedulerKueue}, tenant.Schedulers); diff != "" {
					t.Errorf("schedulers of %s (-want +got):\n%s", tenant.Project, diff)
				}
			}
			if diff := cmp.Diff(tt.tenants, tenants); diff != "" {
				t.Errorf("projects (-want +got):\n%s", diff)
			}
			for _, source := range recorder.last.Policies {
				if source.Name == "core.limits" && !strings.Contains(string(source.Parameters), "60") {
					t.Errorf("core.limits has the parameters %s", source.Parameters)
				}
			}
		})
	}
}
