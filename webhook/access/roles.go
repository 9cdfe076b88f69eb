// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"maps"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// grantedBy is the least authority with which each role is granted and taken away,
// in a department and in its projects. Whoever manages a project grants what lets
// people work in it, and nothing that has its Secrets, decides in it or manages it.
// Whoever administers a department appoints its other administrators too; a role
// that is not listed, such as one that is added some day, is granted by those alone
// who administer them all.
var grantedBy = map[v1alpha1.Role]Authority{
	v1alpha1.RoleDepartmentAdministrator: OverDepartment,
	v1alpha1.RoleDepartmentViewer:        OverDepartment,
	v1alpha1.RoleResearchManager:         OverDepartment,
	v1alpha1.RoleEditor:                  OverDepartment,
	v1alpha1.RoleL1Researcher:            OverProject,
	v1alpha1.RoleL2Researcher:            OverProject,
	v1alpha1.RoleMLEngineer:              OverProject,
	v1alpha1.RoleViewer:                  OverProject,
}

// MayGrant tells whether the role may be granted, and taken away, with that
// authority.
func (a Authority) MayGrant(role v1alpha1.Role) bool { return a >= needed(role) }

func needed(role v1alpha1.Role) Authority {
	if least, listed := grantedBy[role]; listed {
		return least
	}
	return OverAll
}

// whoGrants says which roles the authority grants, and who grants this one.
func (a Authority) whoGrants(role v1alpha1.Role) string {
	whom := "somebody who administers every department"
	switch needed(role) {
	case OverDepartment:
		whom = "a member of the department with the role " + string(v1alpha1.RoleDepartmentAdministrator)
	case OverProject:
		whom = "somebody who manages the project"
	}
	var own []string
	for _, role := range slices.Sorted(maps.Keys(grantedBy)) {
		if a.MayGrant(role) {
			own = append(own, string(role))
		}
	}
	if len(own) == 0 {
		return "ask " + whom
	}
	return "yours are " + strings.Join(own, ", ") + "; ask " + whom
}
