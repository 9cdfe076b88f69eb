// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import "sluice.dev/api/v1alpha1"

// grantedBy is the least authority over the department with which each role is
// granted, in the department and in its projects. Whoever administers a department
// appoints its other administrators too; a role that is not listed, such as one
// that is added some day, is granted by those alone who administer them all.
var grantedBy = map[v1alpha1.Role]Authority{
	v1alpha1.RoleDepartmentAdministrator: OverDepartment,
	v1alpha1.RoleDepartmentViewer:        OverDepartment,
	v1alpha1.RoleResearchManager:         OverDepartment,
	v1alpha1.RoleEditor:                  OverDepartment,
	v1alpha1.RoleL1Researcher:            OverDepartment,
	v1alpha1.RoleL2Researcher:            OverDepartment,
	v1alpha1.RoleMLEngineer:              OverDepartment,
	v1alpha1.RoleViewer:                  OverDepartment,
}

// MayGrant tells whether the role may be granted with that authority over the
// department.
func (a Authority) MayGrant(role v1alpha1.Role) bool {
	least, listed := grantedBy[role]
	if !listed {
		least = OverAll
	}
	return a >= least
}
