// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation"
)

// fakeAuthorizer has the departments that each user administers; "" means all.
type fakeAuthorizer map[string][]string

func (a fakeAuthorizer) Administers(_ context.Context, user authenticationv1.UserInfo, department string) (bool, error) {
	return slices.Contains(a[user.Username], department), nil
}

var testAuthorizer = fakeAuthorizer{"root": {""}, "dean": {"students"}, "officer": {"research"}}

// fixedClock is a policy clock with a constant time.
type fixedClock time.Time

func (f fixedClock) Now() time.Time                  { return time.Time(f) }
func (fixedClock) FromReal(t time.Time) time.Time    { return t }
func (fixedClock) RealUntil(time.Time) time.Duration { return 0 }

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newDepartment returns a department with four guaranteed GPUs.
func newDepartment(changes ...func(*v1alpha1.Department)) *v1alpha1.Department {
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

func withGuarantee(gpus string) func(*v1alpha1.Department) {
	return func(d *v1alpha1.Department) { d.Spec.NodePools[0].GPU.Guaranteed = resource.MustParse(gpus) }
}

func withMember(m v1alpha1.Member) func(*v1alpha1.Department) {
	return func(d *v1alpha1.Department) { d.Spec.Members = append(d.Spec.Members, m) }
}

func withAnnotation(key string) func(*v1alpha1.Department) {
	return func(d *v1alpha1.Department) { d.Annotations = map[string]string{key: "x"} }
}

func withRestrictedPodSecurity(d *v1alpha1.Department) {
	d.Spec.PodSecurity = v1alpha1.PodSecurityRestricted
}

func newReader(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).Build()
}

func newValidator(cached, live client.Reader) *Validator {
	return &Validator{Cached: cached, Live: live, Clock: fixedClock(now), Authorizer: testAuthorizer}
}

// handle returns the response to a request of a user; before is nil for a creation, and after for a deletion.
func handle(t *testing.T, v *Validator, user string, before, after *v1alpha1.Department) admission.Response {
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
	return v.Handler(newScheme(t)).Handle(t.Context(), request)
}

func TestAuthorization(t *testing.T) {
	kim := v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: "kim@example.org", Role: v1alpha1.RoleDepartmentAdministrator}
	people := func(d *v1alpha1.Department) {
		withMember(kim)(d)
		withAnnotation(corev1.LastAppliedConfigAnnotation)(d)
		d.Spec.DisplayName = "All students"
		d.Spec.Contacts = []v1alpha1.Contact{{Name: "Desk", Email: "desk@example.org"}}
		d.Spec.Notices.Language = "en"
	}
	much := func(d *v1alpha1.Department) {
		withGuarantee("5")(d)
		withRestrictedPodSecurity(d)
		d.Spec.Oversubscription = v1alpha1.OversubscriptionAllow
		d.Spec.Resources.CPU = resource.NewQuantity(64, resource.DecimalSI)
		d.Spec.Projects.AtExpiry = v1alpha1.ExpiryConfirm
		d.Spec.Extensions.SelfService = 3
		d.Labels = map[string]string{"tier": "gold"}
	}
	otherwise := func(d *v1alpha1.Department) { withGuarantee("4000m")(d) }
	tests := map[string]struct {
		user          string
		before, after *v1alpha1.Department
		code          int32
		wantMessage   []string
	}{
		"a system administrator makes it":          {"root", nil, newDepartment(people, much), http.StatusOK, nil},
		"a system administrator changes it":        {"root", newDepartment(), newDepartment(much), http.StatusOK, nil},
		"a system administrator deletes it":        {"root", newDepartment(), nil, http.StatusOK, nil},
		"its administrator makes it":               {"dean", nil, newDepartment(), http.StatusForbidden, []string{"only system administrators create and delete departments", "dean does not administer all departments"}},
		"its administrator deletes it":             {"dean", newDepartment(), nil, http.StatusForbidden, []string{"only system administrators create and delete departments"}},
		"its administrator changes its people":     {"dean", newDepartment(), newDepartment(people), http.StatusOK, nil},
		"its administrator writes it differently":  {"dean", newDepartment(), newDepartment(otherwise), http.StatusOK, nil},
		"its administrator gives it more":          {"dean", newDepartment(), newDepartment(withGuarantee("5")), http.StatusForbidden, []string{"spec.nodePools: Forbidden: only system administrators change it; the department's administrators change spec.contacts, spec.displayName, spec.members, spec.notices"}},
		"its administrator changes all":            {"dean", newDepartment(), newDepartment(people, much), http.StatusForbidden, []string{"spec.nodePools", "spec.podSecurity", "spec.oversubscription", "spec.resources", "spec.projects", "spec.extensions", "metadata.labels"}},
		"its administrator annotates it":           {"dean", newDepartment(), newDepartment(withAnnotation("tier")), http.StatusForbidden, []string{"metadata.annotations"}},
		"one of another changes its people":        {"officer", newDepartment(), newDepartment(people), http.StatusForbidden, []string{"officer does not administer it"}},
		"another user annotates it":                {"eve", newDepartment(), newDepartment(withAnnotation("tier")), http.StatusForbidden, []string{"eve does not administer it"}},
		"its administrator lets a robot run it":    {"dean", newDepartment(), newDepartment(withMember(v1alpha1.Member{Kind: v1alpha1.MemberServiceAccount, Namespace: "thesis", Name: "robot", Role: v1alpha1.RoleDepartmentAdministrator})), http.StatusUnprocessableEntity, []string{"spec.members[0].role", "every user who can run pods in project thesis (namespace thesis) would administer the department"}},
		"a system administrator gives it too much": {"root", newDepartment(), newDepartment(withGuarantee("9")), http.StatusOK, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := newReader(t, &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}})
			got := handle(t, newValidator(all, all), tc.user, tc.before, tc.after)
			if got.Result == nil || got.Result.Code != tc.code {
				t.Fatalf("answer = %+v, want %d", got.Result, tc.code)
			}
			for _, want := range tc.wantMessage {
				if !strings.Contains(got.Result.Message, want) {
					t.Errorf("%q does not say %q", got.Result.Message, want)
				}
			}
		})
	}
}

// The refusal to delete a department names some of its projects, however many there are, and the command that moves
// them.
func TestDepartmentWithManyProjectsIsKept(t *testing.T) {
	var projects []v1alpha1.Project
	for i := range 1000 {
		projects = append(projects, v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("course-%04d", i)}, Spec: v1alpha1.ProjectSpec{Department: "students"},
		})
	}
	err := validateNoProjects(newDepartment(), projects)
	for _, want := range []string{"it has 1000 projects: course-0000, ", " more;", "sluice projects move --from students --to DEPARTMENT --dry-run"} {
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
}

// A department cannot lower its quota below its projects', and the response warns of side effects.
func TestDepartmentQuotaCoversProjects(t *testing.T) {
	course := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "course"},
		Spec:       v1alpha1.ProjectSpec{Department: "students", PodSecurity: v1alpha1.PodSecurityBaseline, NodePools: newDepartment().Spec.NodePools},
	}
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Status: v1alpha1.NodePoolStatus{GPUs: 4}}
	all, none := newReader(t, course, pool), newReader(t, pool)
	lowered := newDepartment(withGuarantee("3"))
	if got := handle(t, newValidator(all, all), "root", newDepartment(), lowered); got.Allowed || !strings.Contains(got.Result.Message, "were promised 4 GPUs in node pool dgx (course 4), 1 more than that") {
		t.Errorf("lowered below what it promised: %v", got.Result)
	}
	if got := handle(t, newValidator(all, none), "root", newDepartment(), lowered); !got.Allowed {
		t.Errorf("lowered after the project went: %v", got.Result)
	}
	if got := handle(t, newValidator(all, all), "root", newDepartment(), nil); got.Allowed || !strings.Contains(got.Result.Message, "it has 1 projects: course") {
		t.Errorf("deleted with a project: %v", got.Result)
	}
	if got := handle(t, newValidator(all, none), "root", newDepartment(), nil); !got.Allowed {
		t.Errorf("deleted after the project went: %v", got.Result)
	}
	got := handle(t, newValidator(all, all), "root", newDepartment(), newDepartment(withGuarantee("5"), withRestrictedPodSecurity))
	if words := strings.Join(got.Warnings, "\n"); !got.Allowed || len(got.Warnings) != 2 ||
		!strings.Contains(words, "spec.podSecurity: also applies to course") || !strings.Contains(words, "node pool dgx has 4 GPUs, and 5 GPUs are now guaranteed") {
		t.Errorf("raised and stricter: %v, warnings %q", got.Result, got.Warnings)
	}
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func departmentWithNotices(zone, digest string) *v1alpha1.Department {
	return &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{Notices: v1alpha1.NoticeTerms{TimeZone: zone, Digest: digest}}}
}

func TestValidate(t *testing.T) {
	const zone, digest = "spec.notices.timeZone", "spec.notices.digest"
	tests := map[string]struct {
		zone, digest string
		wrong        []string // what the one error says
		warns        string
	}{
		"nothing said":              {},
		"usual":                     {zone: "Europe/Berlin", digest: "0 8 * * *"},
		"weekdays":                  {zone: "UTC", digest: "30 7 * * 1-5"},
		"no such zone":              {zone: "Europe/Magdeburg", wrong: []string{zone, "Europe/Magdeburg", "Europe/Berlin"}},
		"the machine's zone":        {zone: "Local", wrong: []string{zone, "Local"}},
		"a path as a zone":          {zone: "../../etc/passwd", wrong: []string{zone, "etc/passwd"}},
		"six fields":                {digest: "0 0 8 * * *", wrong: []string{digest, "0 0 8 * * *", "five cron fields"}},
		"four fields":               {digest: "8 * * *", wrong: []string{digest, "five cron fields"}},
		"hour 25":                   {digest: "0 25 * * *", wrong: []string{digest, "25"}},
		"month 13":                  {digest: "0 8 * 13 *", wrong: []string{digest, "13"}},
		"a name":                    {digest: "@daily", wrong: []string{digest, "@daily"}},
		"with a zone of its own":    {digest: "CRON_TZ=Asia/Tokyo 0 8 * * *", wrong: []string{digest, "timeZone sets the zone"}},
		"a day that never comes":    {digest: "0 8 30 2 *", wrong: []string{digest, "never be sent"}},
		"when clocks change":        {digest: "30 2 * * *", warns: "02:00 and 03:00"},
		"at any hour, so at 2 too":  {digest: "0 * * * *", warns: "02:00 and 03:00"},
		"three is safe, and ranges": {digest: "0 3-6 * * *"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := Validate(nil, departmentWithNotices(tc.zone, tc.digest), validation.AuthorityAll, ClusterState{}, now)
			if len(tc.wrong) == 0 {
				if len(errs) > 0 {
					t.Fatalf("refused: %v", errs)
				}
			} else if len(errs) != 1 {
				t.Fatalf("errors = %v, want one", errs)
			}
			for _, want := range tc.wrong {
				if !strings.Contains(errs[0].Error(), want) {
					t.Errorf("error %q does not say %q", errs[0], want)
				}
			}
			if got := strings.Join(warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings = %q, want %q", got, tc.warns)
			}
		})
	}
}

func FuzzValidate(f *testing.F) {
	f.Add("Europe/Berlin", "0 8 * * *")
	f.Add("", "*/0 * * * *")
	f.Add("\x00", "TZ= ")
	f.Fuzz(func(_ *testing.T, zone, digest string) {
		Validate(nil, departmentWithNotices(zone, digest), validation.AuthorityAll, ClusterState{}, now) // must neither panic nor hang
	})
}
