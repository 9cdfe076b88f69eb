// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Administrators knows who administers departments: a [Reviewer].
type Administrators interface {
	// Administers tells whether the user may administer the department, or
	// [EveryDepartment].
	Administers(ctx context.Context, user authenticationv1.UserInfo, department string) (bool, error)
}

// Authority is how much of the departments somebody administers.
type Authority int

// The authorities, the least first.
const (
	// OverNothing administers neither the department nor all.
	OverNothing Authority = iota
	// OverDepartment administers the department.
	OverDepartment
	// OverAll administers every department, also those to come.
	OverAll
)

// AuthorityOver is the user's over the department.
func AuthorityOver(ctx context.Context, administrators Administrators, user authenticationv1.UserInfo, department string) (Authority, error) {
	all, err := administrators.Administers(ctx, user, EveryDepartment)
	if err != nil {
		return OverNothing, err
	}
	if all {
		return OverAll, nil
	}
	one, err := administrators.Administers(ctx, user, department)
	if err != nil || !one {
		return OverNothing, err
	}
	return OverDepartment, nil
}
