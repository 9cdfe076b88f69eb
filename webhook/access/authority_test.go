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
