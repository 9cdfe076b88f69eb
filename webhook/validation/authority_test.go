// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api"
	"sluice.dev/webhook/validation"
)

// fakeDepartmentAuthorizer has the departments that the user administers, or the error for them.
type fakeDepartmentAuthorizer map[string]error

func (h fakeDepartmentAuthorizer) Administers(_ context.Context, _ authenticationv1.UserInfo, department string) (bool, error) {
	err, listed := h[department]
	return listed && err == nil, err
}

func TestResolveAuthority(t *testing.T) {
	down := errors.New("down")
	tests := map[string]struct {
		authorizer fakeDepartmentAuthorizer
		want       validation.Authority
		err        error
	}{
		"nothing":           {fakeDepartmentAuthorizer{}, validation.AuthorityNone, nil},
		"another":           {fakeDepartmentAuthorizer{"research": nil}, validation.AuthorityNone, nil},
		"this one":          {fakeDepartmentAuthorizer{"students": nil}, validation.AuthorityDepartment, nil},
		"all":               {fakeDepartmentAuthorizer{validation.AllDepartments: nil}, validation.AuthorityAll, nil},
		"an error":          {fakeDepartmentAuthorizer{validation.AllDepartments: down}, validation.AuthorityNone, down},
		"an error for one":  {fakeDepartmentAuthorizer{"students": down}, validation.AuthorityNone, down},
		"all with an error": {fakeDepartmentAuthorizer{validation.AllDepartments: nil, "students": down}, validation.AuthorityAll, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := validation.ResolveAuthority(t.Context(), tc.authorizer, authenticationv1.UserInfo{Username: "kim"}, "students")
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("ResolveAuthority = %v, %v", got, err)
			}
		})
	}
}

// fakeProjectAuthorizer has the departments that the user administers, and the projects that the user manages.
type fakeProjectAuthorizer struct {
	fakeDepartmentAuthorizer
	manages fakeDepartmentAuthorizer
}

func (w fakeProjectAuthorizer) Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error) {
	return w.manages.Administers(ctx, user, project)
}

func TestResolveProjectAuthority(t *testing.T) {
	down := errors.New("down")
	tests := map[string]struct {
		administers, manages fakeDepartmentAuthorizer
		want                 validation.Authority
		err                  error
	}{
		"nothing":                     {want: validation.AuthorityNone},
		"another project":             {manages: fakeDepartmentAuthorizer{"course": nil}, want: validation.AuthorityNone},
		"this one":                    {manages: fakeDepartmentAuthorizer{"thesis": nil}, want: validation.AuthorityProject},
		"its department":              {administers: fakeDepartmentAuthorizer{"students": nil}, want: validation.AuthorityDepartment},
		"both":                        {administers: fakeDepartmentAuthorizer{"students": nil}, manages: fakeDepartmentAuthorizer{"thesis": down}, want: validation.AuthorityDepartment},
		"all":                         {administers: fakeDepartmentAuthorizer{validation.AllDepartments: nil}, want: validation.AuthorityAll},
		"a department of its name":    {administers: fakeDepartmentAuthorizer{"thesis": nil}, want: validation.AuthorityNone},
		"an error for the project":    {manages: fakeDepartmentAuthorizer{"thesis": down}, want: validation.AuthorityNone, err: down},
		"an error for the department": {administers: fakeDepartmentAuthorizer{"students": down}, manages: fakeDepartmentAuthorizer{"thesis": nil}, want: validation.AuthorityNone, err: down},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := validation.ResolveProjectAuthority(t.Context(), fakeProjectAuthorizer{tc.administers, tc.manages}, authenticationv1.UserInfo{Username: "rita"}, "students", "thesis")
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("ResolveProjectAuthority = %v, %v", got, err)
			}
		})
	}
}

// newReviewer returns a reviewer of an API server with one result for all reviews, and the last review.
func newReviewer(t *testing.T, status authorizationv1.SubjectAccessReviewStatus, failure error) (validation.Reviewer, *authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	last := &authorizationv1.SubjectAccessReviewSpec{}
	c := fake.NewClientBuilder().WithScheme(kinds).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			review, ok := object.(*authorizationv1.SubjectAccessReview)
			if !ok {
				t.Fatalf("%T was created", object)
			}
			*last, review.Status = review.Spec, status
			return failure
		},
	}).Build()
	return validation.Reviewer{Client: c}, last
}

func TestAdministersReviewsFullUserInfo(t *testing.T) {
	reviewer, review := newReviewer(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil)
	user := authenticationv1.UserInfo{
		Username: "kim@example.org", UID: "7", Groups: []string{"staff"},
		Extra: map[string]authenticationv1.ExtraValue{"scopes": {"all"}},
	}
	if allowed, err := reviewer.Administers(t.Context(), user, "students"); !allowed || err != nil {
		t.Errorf("Administers = %v, %v", allowed, err)
	}
	want := &authorizationv1.SubjectAccessReviewSpec{
		User: "kim@example.org", UID: "7", Groups: []string{"staff"},
		Extra: map[string]authorizationv1.ExtraValue{"scopes": {"all"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "administer", Group: "sluice.dev", Version: "v1alpha1", Resource: "departments", Subresource: "projects", Name: "students",
		},
	}
	if diff := cmp.Diff(want, review); diff != "" {
		t.Errorf("the review (-want +got):\n%s", diff)
	}
}

func TestAdministersRequiresAllowedReview(t *testing.T) {
	for name, status := range map[string]authorizationv1.SubjectAccessReviewStatus{
		"no opinion": {},
		"denied":     {Denied: true},
		"both":       {Allowed: true, Denied: true},
	} {
		reviewer, _ := newReviewer(t, status, nil)
		if allowed, err := reviewer.Administers(t.Context(), authenticationv1.UserInfo{Username: "kim"}, validation.AllDepartments); allowed || err != nil {
			t.Errorf("%s: Administers = %v, %v", name, allowed, err)
		}
	}
	down := errors.New("down")
	reviewer, _ := newReviewer(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, down)
	if allowed, err := reviewer.Administers(t.Context(), authenticationv1.UserInfo{Username: "kim"}, "students"); allowed || !errors.Is(err, down) || !strings.Contains(err.Error(), "students") {
		t.Errorf("with an error: Administers = %v, %v", allowed, err)
	}
}

func TestManagesReviewsProjectByName(t *testing.T) {
	reviewer, review := newReviewer(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil)
	if allowed, err := reviewer.Manages(t.Context(), authenticationv1.UserInfo{Username: "rita"}, "thesis"); !allowed || err != nil {
		t.Errorf("Manages = %v, %v", allowed, err)
	}
	want := &authorizationv1.SubjectAccessReviewSpec{
		User: "rita",
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "manage", Group: "sluice.dev", Version: "v1alpha1", Resource: "projects", Name: "thesis",
		},
	}
	if diff := cmp.Diff(want, review); diff != "" {
		t.Errorf("the review (-want +got):\n%s", diff)
	}
	down := errors.New("down")
	reviewer, _ = newReviewer(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, down)
	if allowed, err := reviewer.Manages(t.Context(), authenticationv1.UserInfo{Username: "rita"}, "thesis"); allowed || !errors.Is(err, down) || !strings.Contains(err.Error(), "thesis") {
		t.Errorf("with an error: Manages = %v, %v", allowed, err)
	}
}
