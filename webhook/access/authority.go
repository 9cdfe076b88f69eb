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

// Writers knows who writes projects: a [Reviewer].
type Writers interface {
	Administrators
	// Manages tells whether the user may manage the project.
	Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error)
}

// Authority is how much of the departments and their projects is somebody's.
type Authority int

// The authorities, the least first.
const (
	// OverNothing administers nothing and manages nothing.
	OverNothing Authority = iota
	// OverProject manages one project: its people and its quotas.
	OverProject
	// OverDepartment administers the department.
	OverDepartment
	// OverAll administers every department, also those to come.
	OverAll
)

// AuthorityOver is the user's over the department: OverNothing, OverDepartment or
// OverAll.
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

// AuthorityOverProject is the user's over a project of the department: that over
// the department, or OverProject where the user has none and manages the project.
func AuthorityOverProject(ctx context.Context, writers Writers, user authenticationv1.UserInfo, department, project string) (Authority, error) {
	authority, err := AuthorityOver(ctx, writers, user, department)
	if err != nil || authority > OverNothing {
		return authority, err
	}
	manages, err := writers.Manages(ctx, user, project)
	if err != nil || !manages {
		return OverNothing, err
	}
	return OverProject, nil
}
