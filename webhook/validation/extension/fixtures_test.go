// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/validation"
)

const testNamespace = "lab"

// The users of the tests.
const (
	anna      = "anna@example.org"      // runs workloads
	professor = "professor@example.org" // owns the project
	editor    = "editor@example.org"    // has the role editor in the project
	dean      = "dean@example.org"      // administers the department, as a member
	lead      = "lead@example.org"      // is in the group of the research managers
	officer   = "officer@example.org"   // administers the department by RBAC
	root      = "root@example.org"      // administers all departments
	robot     = "system:serviceaccount:ci:robot"
)

// fakeAuthorizer has the department that each user administers.
type fakeAuthorizer map[string]string

func (m fakeAuthorizer) Administers(_ context.Context, user authenticationv1.UserInfo, department string) (bool, error) {
	administered, ok := m[user.Username]
	return ok && (administered == "*" || administered == department), nil
}

func newDepartment(change ...func(*v1alpha1.ExtensionTerms)) *v1alpha1.Department {
	d := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec: v1alpha1.DepartmentSpec{
			Members: []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: dean, Role: v1alpha1.RoleDepartmentAdministrator}},
			Extensions: v1alpha1.ExtensionTerms{
				SelfService: 2, MaxDuration: ptr.To(period.MustParseDuration("24h")), Window: ptr.To(period.MustParseDuration("30d")),
				Approvers: []v1alpha1.ApproverRole{"department-administrator"},
			},
		},
	}
	for _, c := range change {
		c(&d.Spec.Extensions)
	}
	return d
}

func withApprovers(roles ...v1alpha1.ApproverRole) func(*v1alpha1.ExtensionTerms) {
	return func(terms *v1alpha1.ExtensionTerms) { terms.Approvers = roles }
}

func newProject() *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
		Spec: v1alpha1.ProjectSpec{Department: "students", Namespace: testNamespace, Owners: []v1alpha1.Owner{
			{Contact: v1alpha1.Contact{Name: "Prof. Ada", Email: professor}, User: professor},
			{Contact: v1alpha1.Contact{Name: "Ben", Email: "ben@example.org"}},
		}, Members: []v1alpha1.Member{
			{Kind: v1alpha1.MemberUser, Name: anna, Role: v1alpha1.RoleL2Researcher},
			{Kind: v1alpha1.MemberUser, Name: editor, Role: v1alpha1.RoleEditor},
			{Kind: v1alpha1.MemberGroup, Name: "leads", Role: v1alpha1.RoleResearchManager},
			{Kind: v1alpha1.MemberServiceAccount, Namespace: "ci", Name: "robot", Role: v1alpha1.RoleEditor},
		}},
		Status: v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: testNamespace}},
	}
}

// newClock returns the clock of a Job of anna.
func newClock(name string, change ...func(*v1alpha1.WorkloadClockStatus)) *v1alpha1.WorkloadClock {
	day := period.MustParseDuration("24h")
	c := &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: v1alpha1.WorkloadClockName("batch", "Job", name)},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: name}},
		Status:     v1alpha1.WorkloadClockStatus{CreatedBy: anna, Limit: &v1alpha1.ClockLimit{Configured: day, InForce: day}},
	}
	for _, change := range change {
		change(&c.Status)
	}
	return c
}

func newExtension(change ...func(*v1alpha1.Extension)) *v1alpha1.Extension {
	e := &v1alpha1.Extension{
		TypeMeta:   metav1.TypeMeta{APIVersion: "sluice.dev/v1alpha1", Kind: "Extension"},
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "more", Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: anna}},
		Spec: v1alpha1.ExtensionSpec{
			Target: v1alpha1.ExtensionTarget{APIVersion: "batch/v1", Kind: "Job", Name: "training"},
			Action: v1alpha1.ActionExtend, By: ptr.To(period.MustParseDuration("24h")), Reason: "nearly done",
		},
	}
	for _, c := range change {
		c(e)
	}
	return e
}

func newValidator(t *testing.T, administrators validation.DepartmentAuthorizer, objects ...client.Object) *Validator {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).
		WithIndex(&v1alpha1.Project{}, evaluation.ProjectNamespaceIndex, func(object client.Object) []string {
			if p, ok := object.(*v1alpha1.Project); ok && p.Status.Namespace != nil {
				return []string{p.Status.Namespace.Name}
			}
			return nil
		}).Build()
	return &Validator{Cached: c, Live: c, Authorizer: administrators, Clock: fixedClock(now)}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newRequest returns the request of a user; before is nil for a creation.
func newRequest(t *testing.T, user authenticationv1.UserInfo, before, after *v1alpha1.Extension, subresource string) admission.Request {
	t.Helper()
	raw := func(e *v1alpha1.Extension) runtime.RawExtension {
		if e == nil {
			return runtime.RawExtension{}
		}
		bytes, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: bytes}
	}
	operation := admissionv1.Create
	if before != nil {
		operation = admissionv1.Update
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: operation, SubResource: subresource, Namespace: after.Namespace, Name: after.Name,
		UserInfo: user, Object: raw(after), OldObject: raw(before),
	}}
}

func userInfo(name string, groups ...string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: name, Groups: groups}
}

// fixedClock is a policy clock with a constant time.
type fixedClock time.Time

func (f fixedClock) Now() time.Time                  { return time.Time(f) }
func (fixedClock) FromReal(t time.Time) time.Time    { return t }
func (fixedClock) RealUntil(time.Time) time.Duration { return 0 }
