// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package departments

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
)

// administers says which departments somebody does; "" is all.
type administers map[string][]string

func (a administers) Administers(_ context.Context, user authenticationv1.UserInfo, department string) (bool, error) {
	return slices.Contains(a[user.Username], department), nil
}

var staff = administers{"root": {""}, "dean": {"students"}, "officer": {"research"}}

// fixed is policy time that stands still.
type fixed time.Time

func (f fixed) Now() time.Time                  { return time.Time(f) }
func (fixed) FromReal(t time.Time) time.Time    { return t }
func (fixed) RealUntil(time.Time) time.Duration { return 0 }

func kinds(t *testing.T) *runtime.Scheme {
	t.Helper()
	s, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// students is a department of four guaranteed GPUs.
func students(changes ...func(*v1alpha1.Department)) *v1alpha1.Department {
	d := &v1alpha1.Department{
		TypeMeta:   metav1.TypeMeta{APIVersion: "sluice.dev/v1alpha1", Kind: "Department"},
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec: v1alpha1.DepartmentSpec{
			DisplayName: "Students", PodSecurity: v1alpha1.PodSecurityBaseline,
			NodePools: []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("4"), Limit: resource.MustParse("8")}}},
		},
	}
	for _, c := range changes {
		c(d)
	}
	return d
}

func guaranteed(gpus string) func(*v1alpha1.Department) {
	return func(d *v1alpha1.Department) { d.Spec.NodePools[0].GPU.Guaranteed = resource.MustParse(gpus) }
}

func member(m v1alpha1.Member) func(*v1alpha1.Department) {
	return func(d *v1alpha1.Department) { d.Spec.Members = append(d.Spec.Members, m) }
}

func annotated(key string) func(*v1alpha1.Department) {
	return func(d *v1alpha1.Department) { d.Annotations = map[string]string{key: "x"} }
}

func strict(d *v1alpha1.Department) { d.Spec.PodSecurity = v1alpha1.PodSecurityRestricted }

func reader(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(kinds(t)).WithObjects(objects...).Build()
}

func validator(cached, live client.Reader) *Validator {
	return &Validator{Cached: cached, Live: live, Clock: fixed(now), Administrators: staff}
}

// answer is what the validator says to a request of that user; before is nil at a
// creation, after at a deletion.
func answer(t *testing.T, v *Validator, user string, before, after *v1alpha1.Department) admission.Response {
	t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, UserInfo: authenticationv1.UserInfo{Username: user},
	}}
	for _, part := range []struct {
		department *v1alpha1.Department
		into       *runtime.RawExtension
		without    admissionv1.Operation
	}{{before, &request.OldObject, admissionv1.Create}, {after, &request.Object, admissionv1.Delete}} {
		if part.department == nil {
			request.Operation = part.without
			continue
		}
		var err error
		if part.into.Raw, err = json.Marshal(part.department); err != nil {
			t.Fatal(err)
		}
		request.Name = part.department.Name
	}
	return v.Handler(kinds(t)).Handle(t.Context(), request)
}

func TestWhoMayWrite(t *testing.T) {
	kim := v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: "kim@example.org", Role: v1alpha1.RoleDepartmentAdministrator}
	people := func(d *v1alpha1.Department) {
		member(kim)(d)
		annotated(corev1.LastAppliedConfigAnnotation)(d)
		d.Spec.DisplayName = "All students"
		d.Spec.Contacts = []v1alpha1.Contact{{Name: "Desk", Email: "desk@example.org"}}
		d.Spec.Notices.Language = "en"
	}
	much := func(d *v1alpha1.Department) {
		guaranteed("5")(d)
		strict(d)
		d.Spec.Oversubscription = v1alpha1.OversubscriptionAllow
		d.Spec.Resources.CPU = resource.NewQuantity(64, resource.DecimalSI)
		d.Spec.Projects.AtExpiry = v1alpha1.ExpiryConfirm
		d.Spec.Extensions.SelfService = 3
		d.Labels = map[string]string{"tier": "gold"}
	}
	otherwise := func(d *v1alpha1.Department) { guaranteed("4000m")(d) }
	tests := map[string]struct {
		user          string
		before, after *v1alpha1.Department
		code          int32
		says          []string
	}{
		"a system administrator makes it":          {"root", nil, students(people, much), http.StatusOK, nil},
		"a system administrator changes it":        {"root", students(), students(much), http.StatusOK, nil},
		"a system administrator deletes it":        {"root", students(), nil, http.StatusOK, nil},
		"its administrator makes it":               {"dean", nil, students(), http.StatusForbidden, []string{"only system administrators make and delete departments", "dean does not administer all"}},
		"its administrator deletes it":             {"dean", students(), nil, http.StatusForbidden, []string{"only system administrators make and delete departments"}},
		"its administrator changes its people":     {"dean", students(), students(people), http.StatusOK, nil},
		"its administrator writes it differently":  {"dean", students(), students(otherwise), http.StatusOK, nil},
		"its administrator gives it more":          {"dean", students(), students(guaranteed("5")), http.StatusForbidden, []string{"spec.nodePools: Forbidden: only system administrators change it; the department's own change spec.contacts, spec.displayName, spec.members, spec.notices"}},
		"its administrator changes all":            {"dean", students(), students(people, much), http.StatusForbidden, []string{"spec.nodePools", "spec.podSecurity", "spec.oversubscription", "spec.resources", "spec.projects", "spec.extensions", "metadata.labels"}},
		"its administrator annotates it":           {"dean", students(), students(annotated("tier")), http.StatusForbidden, []string{"metadata.annotations"}},
		"one of another changes its people":        {"officer", students(), students(people), http.StatusForbidden, []string{"officer does not administer it"}},
		"a stranger annotates it":                  {"eve", students(), students(annotated("tier")), http.StatusForbidden, []string{"eve does not administer it"}},
		"its administrator lets a robot run it":    {"dean", students(), students(member(v1alpha1.Member{Kind: v1alpha1.MemberServiceAccount, Namespace: "thesis", Name: "robot", Role: v1alpha1.RoleDepartmentAdministrator})), http.StatusUnprocessableEntity, []string{"spec.members[0].role", "whoever may run pods in project thesis (namespace thesis) would administer the department"}},
		"a system administrator gives it too much": {"root", students(), students(guaranteed("9")), http.StatusOK, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := reader(t, &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}})
			got := answer(t, validator(all, all), tc.user, tc.before, tc.after)
			if got.Result == nil || got.Result.Code != tc.code {
				t.Fatalf("answer = %+v, want %d", got.Result, tc.code)
			}
			for _, want := range tc.says {
				if !strings.Contains(got.Result.Message, want) {
					t.Errorf("%q does not say %q", got.Result.Message, want)
				}
			}
		})
	}
}

// A department keeps what it promised, and is told what will be felt.
func TestPromisesAreKept(t *testing.T) {
	course := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "course"},
		Spec:       v1alpha1.ProjectSpec{Department: "students", PodSecurity: v1alpha1.PodSecurityBaseline, NodePools: students().Spec.NodePools},
	}
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Status: v1alpha1.NodePoolStatus{GPUs: 4}}
	all, none := reader(t, course, pool), reader(t, pool)
	lowered := students(guaranteed("3"))
	if got := answer(t, validator(all, all), "root", students(), lowered); got.Allowed || !strings.Contains(got.Result.Message, "were promised 4 GPUs in node pool dgx (course 4), 1 more than that") {
		t.Errorf("lowered below what it promised: %v", got.Result)
	}
	if got := answer(t, validator(all, none), "root", students(), lowered); !got.Allowed {
		t.Errorf("lowered after the project went: %v", got.Result)
	}
	if got := answer(t, validator(all, all), "root", students(), nil); got.Allowed || !strings.Contains(got.Result.Message, "it has 1 projects: course") {
		t.Errorf("deleted with a project: %v", got.Result)
	}
	if got := answer(t, validator(all, none), "root", students(), nil); !got.Allowed {
		t.Errorf("deleted after the project went: %v", got.Result)
	}
	got := answer(t, validator(all, all), "root", students(), students(guaranteed("5"), strict))
	if words := strings.Join(got.Warnings, "\n"); !got.Allowed || len(got.Warnings) != 2 ||
		!strings.Contains(words, "spec.podSecurity: holds for course too") || !strings.Contains(words, "node pool dgx has 4 GPUs, and 5 GPUs are now guaranteed") {
		t.Errorf("raised and stricter: %v, warnings %q", got.Result, got.Warnings)
	}
}
