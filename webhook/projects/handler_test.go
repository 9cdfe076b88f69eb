// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
)

// administers says which departments somebody does; "" is all. "project thesis" is
// a project that somebody manages.
type administers map[string][]string

func (a administers) Administers(_ context.Context, user authenticationv1.UserInfo, department string) (bool, error) {
	if user.Username == "offline" {
		return false, errors.New("down")
	}
	return slices.Contains(a[user.Username], department), nil
}

func (a administers) Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error) {
	return a.Administers(ctx, user, "project "+project)
}

var staff = administers{
	"root": {""}, "dean": {"students"}, "both": {"students", "research"},
	"rita": {"project thesis"}, "rector": {"research", "project thesis"},
}

func kinds(t *testing.T) *runtime.Scheme {
	t.Helper()
	s, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reader has these projects, and the departments of the tests.
func reader(t *testing.T, projects ...*v1alpha1.Project) client.Reader {
	t.Helper()
	w := world()
	research := w.Department.DeepCopy()
	research.Name = "research"
	objects := []client.Object{w.Department, research}
	for _, p := range projects {
		objects = append(objects, p)
	}
	return fake.NewClientBuilder().WithScheme(kinds(t)).WithObjects(objects...).Build()
}

// answer is what the validator says to a request of that user; before is nil at a
// creation.
func answer(t *testing.T, v *Validator, user string, before, after *v1alpha1.Project) admission.Response {
	t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, UserInfo: authenticationv1.UserInfo{Username: user},
	}}
	for _, part := range []struct {
		project *v1alpha1.Project
		into    *runtime.RawExtension
	}{{before, &request.OldObject}, {after, &request.Object}} {
		if part.project == nil {
			request.Operation = admissionv1.Create
			continue
		}
		p := part.project.DeepCopy()
		p.TypeMeta = metav1.TypeMeta{APIVersion: "sluice.dev/v1alpha1", Kind: "Project"}
		var err error
		if part.into.Raw, err = json.Marshal(p); err != nil {
			t.Fatal(err)
		}
		request.Name = p.Name
	}
	return v.Handler(kinds(t)).Handle(t.Context(), request)
}

func labelled(p *v1alpha1.Project) { p.Labels = map[string]string{"tier": "gold"} }

func TestWhoMayWrite(t *testing.T) {
	plain := project()
	tests := map[string]struct {
		user          string
		before, after *v1alpha1.Project
		code          int32
		says          string
	}{
		"a stranger makes one":                   {"eve", nil, plain, http.StatusForbidden, "eve does not administer department students, and only whoever does makes and deletes its projects: ask a member of it with the role department-administrator"},
		"a stranger changes it":                  {"eve", plain, project(with("eve", v1alpha1.RoleEditor)), http.StatusForbidden, "eve does not administer department students, and does not manage the project either: ask"},
		"a stranger labels it":                   {"eve", plain, project(labelled), http.StatusForbidden, "eve does not administer"},
		"its administrator makes it":             {"dean", nil, plain, http.StatusOK, ""},
		"its administrator labels it":            {"dean", plain, project(labelled), http.StatusOK, ""},
		"its administrator appoints one":         {"dean", plain, project(with("kim", v1alpha1.RoleDepartmentAdministrator)), http.StatusOK, ""},
		"one of another makes it":                {"dean", nil, project(of("research")), http.StatusForbidden, "dean does not administer department research"},
		"one of another takes it":                {"dean", project(of("research")), plain, http.StatusForbidden, "moving a project from research to students takes both"},
		"its administrator gives it away":        {"dean", plain, project(of("research")), http.StatusForbidden, "moving a project from students to research takes both"},
		"somebody over both moves it":            {"both", plain, project(of("research")), http.StatusOK, ""},
		"somebody over all moves it":             {"root", plain, project(of("research")), http.StatusOK, ""},
		"nobody can say":                         {"offline", nil, plain, http.StatusForbidden, "down"},
		"a department that is not":               {"root", nil, project(of("nobody")), http.StatusUnprocessableEntity, "no such department"},
		"a department that is not, for a dean":   {"dean", nil, project(of("nobody")), http.StatusForbidden, "does not administer department nobody"},
		"metadata of what is wrong all the same": {"dean", project(on("gone")), project(on("gone"), labelled), http.StatusOK, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := reader(t)
			got := answer(t, &Validator{Cached: all, Live: all, Writers: staff}, tc.user, tc.before, tc.after)
			if got.Result == nil || got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.says) {
				t.Errorf("answer = %+v, want %d that says %q", got.Result, tc.code, tc.says)
			}
		})
	}
}

// Nobody is refused for what went a moment ago and the cache still has.
func TestRefusalsRestOnWhatIsThere(t *testing.T) {
	stale, fresh := reader(t, project(named("course"), having("3", "3"))), reader(t)
	wants := project(having("2", "2"))
	if got := answer(t, &Validator{Cached: stale, Live: fresh, Writers: staff}, "dean", nil, wants); !got.Allowed {
		t.Errorf("refused for what is gone: %v", got.Result)
	}
	if got := answer(t, &Validator{Cached: stale, Live: stale, Writers: staff}, "dean", nil, wants); got.Allowed || !strings.Contains(got.Result.Message, "1 is left") {
		t.Errorf("what is there: %v", got.Result)
	}
}
