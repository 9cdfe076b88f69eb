// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation"
)

func userMember(name string, role v1alpha1.Role) v1alpha1.Member {
	return v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name, Role: role}
}

func groupMember(name string, role v1alpha1.Role) v1alpha1.Member {
	return v1alpha1.Member{Kind: v1alpha1.MemberGroup, Name: name, Role: role}
}

func serviceAccountMember(namespace string, role v1alpha1.Role) v1alpha1.Member {
	return v1alpha1.Member{Kind: v1alpha1.MemberServiceAccount, Namespace: namespace, Name: "robot", Role: role}
}

func projectOfNamespace(namespace string) string {
	return map[string]string{"lab": "course"}[namespace]
}

func TestValidateMembers(t *testing.T) {
	const administrator, editor = v1alpha1.RoleDepartmentAdministrator, v1alpha1.RoleEditor
	tests := map[string]struct {
		before    []v1alpha1.Member
		member    v1alpha1.Member
		authority validation.Authority
		wrong     string // a part of the one error
		warns     string
	}{
		"a person":                              {member: userMember("kim@example.org", editor), authority: validation.AuthorityDepartment},
		"another administrator":                 {member: userMember("kim@example.org", administrator), authority: validation.AuthorityDepartment},
		"by a user without authority":           {member: userMember("kim@example.org", v1alpha1.RoleViewer), wrong: `spec.members[0].role: Invalid value: "viewer": is more than you may grant`},
		"an unknown role":                       {member: userMember("kim@example.org", "emperor"), authority: validation.AuthorityDepartment, wrong: "more than you may grant"},
		"an unknown role by AuthorityAll":       {member: userMember("kim@example.org", "emperor"), authority: validation.AuthorityAll},
		"an unchanged member":                   {before: []v1alpha1.Member{userMember("system:x", editor)}, member: userMember("system:x", editor)},
		"with a new role":                       {before: []v1alpha1.Member{userMember("kim", v1alpha1.RoleViewer)}, member: userMember("kim", editor), wrong: "more than you may grant"},
		"a component":                           {member: userMember("system:kube-scheduler", editor), authority: validation.AuthorityAll, wrong: "spec.members[0].name"},
		"a service account as a user":           {member: userMember("system:serviceaccount:lab:robot", editor), authority: validation.AuthorityAll, wrong: "use kind ServiceAccount"},
		"unauthenticated users":                 {member: groupMember("system:unauthenticated", editor), authority: validation.AuthorityAll, wrong: "have not logged in"},
		"a group":                               {member: groupMember("staff", administrator), authority: validation.AuthorityDepartment},
		"all users":                             {member: groupMember("system:authenticated", v1alpha1.RoleViewer), authority: validation.AuthorityDepartment, warns: "spec.members[0]: every user who can log in will have the role viewer"},
		"all users as administrators":           {member: groupMember("system:authenticated", administrator), authority: validation.AuthorityAll, wrong: "every user who can log in would administer"},
		"every service account":                 {member: groupMember("system:serviceaccounts", editor), authority: validation.AuthorityDepartment, warns: "run a pod in any namespace"},
		"a service account outside projects":    {member: serviceAccountMember("ci", administrator), authority: validation.AuthorityDepartment},
		"a project's service account":           {member: serviceAccountMember("lab", editor), authority: validation.AuthorityDepartment, warns: "every user who can run pods in project course (namespace lab) will have the role editor"},
		"a project's service account, as admin": {member: serviceAccountMember("lab", administrator), authority: validation.AuthorityAll, wrong: "every user who can run pods in project course (namespace lab) would administer the department"},
		"a project's service accounts":          {member: groupMember("system:serviceaccounts:lab", administrator), authority: validation.AuthorityAll, wrong: "project course"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := validation.ValidateMembers(field.NewPath("spec", "members"), tc.before, []v1alpha1.Member{tc.member}, tc.authority, projectOfNamespace)
			if len(errs) > 1 || (tc.wrong == "") != (len(errs) == 0) || len(errs) == 1 && !strings.Contains(errs[0].Error(), tc.wrong) {
				t.Errorf("errors = %v, want %q", errs, tc.wrong)
			}
			if got := strings.Join(warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings = %q, want %q", got, tc.warns)
			}
		})
	}
}

// A project manager adds and removes only the members with the roles for working in the project.
func TestValidateMembersAsProjectManager(t *testing.T) {
	const l1, l2, editor, manager = v1alpha1.RoleL1Researcher, v1alpha1.RoleL2Researcher, v1alpha1.RoleEditor, v1alpha1.RoleResearchManager
	list := func(members ...v1alpha1.Member) []v1alpha1.Member { return members }
	const yours = "you can grant l1-researcher, l2-researcher, ml-engineer, viewer; ask a member of the department with the role department-administrator"
	tests := map[string]struct {
		before, after []v1alpha1.Member
		wrong         string // a part of the one error
	}{
		"adds a user":                {after: list(userMember("kim", l2))},
		"adds a group":               {after: list(groupMember("staff", v1alpha1.RoleViewer))},
		"raises a researcher":        {before: list(userMember("kim", l2)), after: list(userMember("kim", l1))},
		"removes a user":             {before: list(userMember("kim", v1alpha1.RoleMLEngineer))},
		"adds an editor":             {after: list(userMember("kim", editor)), wrong: `spec.members[0].role: Invalid value: "editor": is more than you may grant: ` + yours},
		"makes a researcher editor":  {before: list(userMember("kim", l2)), after: list(userMember("kim", editor)), wrong: "is more than you may grant: " + yours},
		"adds a manager":             {after: list(userMember("kim", manager)), wrong: "more than you may grant"},
		"adds a department viewer":   {after: list(userMember("kim", v1alpha1.RoleDepartmentViewer)), wrong: "more than you may grant"},
		"adds an administrator":      {after: list(userMember("kim", v1alpha1.RoleDepartmentAdministrator)), wrong: "more than you may grant"},
		"adds an unknown role":       {after: list(userMember("kim", "emperor")), wrong: "ask a system administrator"},
		"revokes an editor's role":   {before: list(userMember("kim", editor)), after: list(userMember("kim", l1)), wrong: `spec.members[0].role: Invalid value: "l1-researcher": removes the role editor, which you cannot revoke: ` + yours},
		"removes an editor":          {before: list(userMember("kim", editor)), wrong: `spec.members: Invalid value: "without User kim": removes the role editor, which you cannot revoke: ` + yours},
		"removes a manager":          {before: list(userMember("rita", manager)), wrong: "removes the role research-manager"},
		"removes a service account":  {before: list(serviceAccountMember("ci", editor)), after: list(userMember("robot", l1)), wrong: "without ServiceAccount robot"},
		"adds all users":             {after: list(groupMember("system:authenticated", v1alpha1.RoleViewer)), wrong: "every user who can log in would have the role viewer; a project manager grants roles to users by name"},
		"adds a service account":     {after: list(serviceAccountMember("lab", l1)), wrong: "every user who can run pods in project course (namespace lab) would have the role l1-researcher"},
		"in another order":           {before: list(userMember("kim", editor), userMember("rita", manager)), after: list(userMember("rita", manager), userMember("kim", editor), userMember("anna", l2))},
		"replaces a user by a group": {before: list(userMember("staff", editor)), after: list(groupMember("staff", l1)), wrong: "without User staff"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, _ := validation.ValidateMembers(field.NewPath("spec", "members"), tc.before, tc.after, validation.AuthorityProject, projectOfNamespace)
			if len(errs) > 1 || (tc.wrong == "") != (len(errs) == 0) || len(errs) == 1 && !strings.Contains(errs[0].Error(), tc.wrong) {
				t.Errorf("errors = %v, want %q", errs, tc.wrong)
			}
			if errs, _ := validation.ValidateMembers(field.NewPath("spec", "members"), tc.before, tc.after, validation.AuthorityAll, projectOfNamespace); len(errs) > 0 {
				t.Errorf("AuthorityAll: %v", errs)
			}
		})
	}
}

// An administrator of the department grants every role of the schema, and a project manager the roles for working in a
// project.
func TestEveryRoleHasMinimumAuthority(t *testing.T) {
	for role, byManagers := range map[v1alpha1.Role]bool{
		"department-administrator": false, "department-viewer": false, "editor": false, "research-manager": false,
		"l1-researcher": true, "l2-researcher": true, "ml-engineer": true, "viewer": true,
	} {
		if !validation.AuthorityDepartment.CanGrant(role) || validation.AuthorityProject.CanGrant(role) != byManagers || validation.AuthorityNone.CanGrant(role) {
			t.Errorf("role %s has the wrong minimum authority", role)
		}
	}
}

func TestValidateOwners(t *testing.T) {
	owner := func(user string) v1alpha1.Owner {
		return v1alpha1.Owner{Contact: v1alpha1.Contact{Name: "A", Email: "a@example.org"}, User: user}
	}
	path := field.NewPath("spec", "owners")
	if errs := validation.ValidateOwners(path, nil, []v1alpha1.Owner{owner("anna@example.org"), owner(""), owner("system:anonymous")}); len(errs) != 1 || !strings.Contains(errs[0].Error(), "spec.owners[2].user") {
		t.Errorf("errors = %v, want one", errs)
	}
	if errs := validation.ValidateOwners(path, []v1alpha1.Owner{owner("system:x")}, []v1alpha1.Owner{owner("system:x")}); len(errs) > 0 {
		t.Errorf("an unchanged owner: %v", errs)
	}
}
