// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"sluice.dev/webhook/access"
)

// holds are the departments that somebody administers.
type holds map[string]error

func (h holds) Administers(_ context.Context, _ authenticationv1.UserInfo, department string) (bool, error) {
	err, listed := h[department]
	return listed && err == nil, err
}

func TestAuthorityOver(t *testing.T) {
	down := errors.New("down")
	tests := map[string]struct {
		holds holds
		want  access.Authority
		err   error
	}{
		"nothing":             {holds{}, access.OverNothing, nil},
		"another":             {holds{"research": nil}, access.OverNothing, nil},
		"this one":            {holds{"students": nil}, access.OverDepartment, nil},
		"all":                 {holds{access.EveryDepartment: nil}, access.OverAll, nil},
		"no answer":           {holds{access.EveryDepartment: down}, access.OverNothing, down},
		"no answer for one":   {holds{"students": down}, access.OverNothing, down},
		"all need not be one": {holds{access.EveryDepartment: nil, "students": down}, access.OverAll, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := access.AuthorityOver(t.Context(), tc.holds, authenticationv1.UserInfo{Username: "kim"}, "students")
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("AuthorityOver = %v, %v", got, err)
			}
		})
	}
}

// writes are the departments that somebody administers, and the projects that the
// same person manages.
type writes struct {
	holds
	manages holds
}

func (w writes) Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error) {
	return w.manages.Administers(ctx, user, project)
}

func TestAuthorityOverProject(t *testing.T) {
	down := errors.New("down")
	tests := map[string]struct {
		administers, manages holds
		want                 access.Authority
		err                  error
	}{
		"nothing":                      {want: access.OverNothing},
		"another project":              {manages: holds{"course": nil}, want: access.OverNothing},
		"this one":                     {manages: holds{"thesis": nil}, want: access.OverProject},
		"its department":               {administers: holds{"students": nil}, want: access.OverDepartment},
		"both":                         {administers: holds{"students": nil}, manages: holds{"thesis": down}, want: access.OverDepartment},
		"all":                          {administers: holds{access.EveryDepartment: nil}, want: access.OverAll},
		"a department of its name":     {administers: holds{"thesis": nil}, want: access.OverNothing},
		"no answer for the project":    {manages: holds{"thesis": down}, want: access.OverNothing, err: down},
		"no answer for the department": {administers: holds{"students": down}, manages: holds{"thesis": nil}, want: access.OverNothing, err: down},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := access.AuthorityOverProject(t.Context(), writes{tc.administers, tc.manages}, authenticationv1.UserInfo{Username: "rita"}, "students", "thesis")
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("AuthorityOverProject = %v, %v", got, err)
			}
		})
	}
}
