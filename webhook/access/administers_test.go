// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

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

	"sluice.dev/api/scheme"
	"sluice.dev/webhook/access"
)

// answering is an API server that says that of every question, and keeps the last.
func answering(t *testing.T, status authorizationv1.SubjectAccessReviewStatus, failure error) (access.Reviewer, *authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	asked := &authorizationv1.SubjectAccessReviewSpec{}
	c := fake.NewClientBuilder().WithScheme(kinds).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			review, ok := object.(*authorizationv1.SubjectAccessReview)
			if !ok {
				t.Fatalf("%T was made", object)
			}
			*asked, review.Status = review.Spec, status
			return failure
		},
	}).Build()
	return access.Reviewer{Client: c}, asked
}

func TestAdministersAsksForTheWholeUser(t *testing.T) {
	reviewer, asked := answering(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil)
	user := authenticationv1.UserInfo{
		Username: "kim@example.org", UID: "7", Groups: []string{"staff"},
		Extra: map[string]authenticationv1.ExtraValue{"scopes": {"all"}},
	}
	if may, err := reviewer.Administers(t.Context(), user, "students"); !may || err != nil {
		t.Errorf("Administers = %v, %v", may, err)
	}
	want := &authorizationv1.SubjectAccessReviewSpec{
		User: "kim@example.org", UID: "7", Groups: []string{"staff"},
		Extra: map[string]authorizationv1.ExtraValue{"scopes": {"all"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "administer", Group: "sluice.dev", Version: "v1alpha1", Resource: "departments", Subresource: "projects", Name: "students",
		},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the question (-want +got):\n%s", diff)
	}
}

func TestAdministersOnlyWhereItIsAllowed(t *testing.T) {
	for name, status := range map[string]authorizationv1.SubjectAccessReviewStatus{
		"no opinion": {},
		"denied":     {Denied: true},
		"both":       {Allowed: true, Denied: true},
	} {
		reviewer, _ := answering(t, status, nil)
		if may, err := reviewer.Administers(t.Context(), authenticationv1.UserInfo{Username: "kim"}, access.EveryDepartment); may || err != nil {
			t.Errorf("%s: Administers = %v, %v", name, may, err)
		}
	}
	down := errors.New("down")
	reviewer, _ := answering(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, down)
	if may, err := reviewer.Administers(t.Context(), authenticationv1.UserInfo{Username: "kim"}, "students"); may || !errors.Is(err, down) || !strings.Contains(err.Error(), "students") {
		t.Errorf("without an answer: Administers = %v, %v", may, err)
	}
}

func TestManagesAsksAboutTheProjectByName(t *testing.T) {
	reviewer, asked := answering(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil)
	if may, err := reviewer.Manages(t.Context(), authenticationv1.UserInfo{Username: "rita"}, "thesis"); !may || err != nil {
		t.Errorf("Manages = %v, %v", may, err)
	}
	want := &authorizationv1.SubjectAccessReviewSpec{
		User: "rita",
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "manage", Group: "sluice.dev", Version: "v1alpha1", Resource: "projects", Name: "thesis",
		},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the question (-want +got):\n%s", diff)
	}
	down := errors.New("down")
	reviewer, _ = answering(t, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, down)
	if may, err := reviewer.Manages(t.Context(), authenticationv1.UserInfo{Username: "rita"}, "thesis"); may || !errors.Is(err, down) || !strings.Contains(err.Error(), "thesis") {
		t.Errorf("without an answer: Manages = %v, %v", may, err)
	}
}
