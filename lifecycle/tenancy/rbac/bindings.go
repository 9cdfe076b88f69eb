// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// namePrefix begins the names of all that is bound here, and of what is bound.
const namePrefix = "sluice:"

// projectWriterRole is the ClusterRole to write Projects, which is installed.
const projectWriterRole = namePrefix + "project-writer"

// namespaceRoles are all that are bound in a project's namespace.
var namespaceRoles = []v1alpha1.Role{
	v1alpha1.RoleDepartmentAdministrator, v1alpha1.RoleEditor, v1alpha1.RoleResearchManager,
	v1alpha1.RoleL1Researcher, v1alpha1.RoleL2Researcher, v1alpha1.RoleMLEngineer,
	v1alpha1.RoleViewer, v1alpha1.RoleDepartmentViewer, roleOwner,
}

// ProjectObjects are the rights that a project's members have: to get the Project by
// its name; for its research managers to write it, of which admission lets through
// its people and quotas; and, in its namespace where that is governed, those of
// their roles. The
// department may be nil, where it is missing. A project that is being deleted has
// no members any more.
func ProjectObjects(project *v1alpha1.Project, department *v1alpha1.Department, governed bool) []client.Object {
	if !project.DeletionTimestamp.IsZero() {
		return nil
	}
	all := slices.Concat(project.Spec.Members, ownerMembers(project))
	if department != nil {
		all = append(all, department.Spec.Members...)
	}
	if len(all) == 0 {
		return nil
	}
	mark := projectLabels(project.Name)
	name := namePrefix + "project:" + project.Name
	wanted := []client.Object{
		newClusterRole(name, mark, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.Group}, Resources: []string{"projects"}, ResourceNames: []string{project.Name}, Verbs: []string{"get"},
		}),
		newClusterRoleBinding(name, mark, name, all),
	}
	if managers := membersWithRole(all, v1alpha1.RoleResearchManager); len(managers) > 0 {
		manage := name + ":research-managers"
		wanted = append(wanted,
			newClusterRole(manage, mark, rbacv1.PolicyRule{
				APIGroups: []string{v1alpha1.Group}, Resources: []string{"projects"}, ResourceNames: []string{project.Name}, Verbs: []string{"manage", "patch", "update"},
			}),
			newClusterRoleBinding(manage, mark, manage, managers))
	}
	if !governed {
		return wanted
	}
	for _, role := range namespaceRoles {
		if some := membersWithRole(all, role); len(some) > 0 {
			wanted = append(wanted, newRoleBinding(project.NamespaceName(), namePrefix+string(role), mark, some))
		}
	}
	return wanted
}

// DepartmentObjects are the rights that a department's members have beside those in its
// projects: those who look after it, to get it by its name; its administrators, to
// administer it and to write Projects, of which admission lets through those of
// their departments.
func DepartmentObjects(department *v1alpha1.Department) []client.Object {
	if !department.DeletionTimestamp.IsZero() {
		return nil
	}
	mark := departmentLabels(department.Name)
	name := namePrefix + "department:" + department.Name
	var wanted []client.Object
	if readers := membersWithRole(department.Spec.Members, v1alpha1.RoleDepartmentAdministrator, v1alpha1.RoleResearchManager, v1alpha1.RoleDepartmentViewer); len(readers) > 0 {
		wanted = append(wanted,
			newClusterRole(name, mark, rbacv1.PolicyRule{
				APIGroups: []string{v1alpha1.Group}, Resources: []string{"departments"}, ResourceNames: []string{department.Name}, Verbs: []string{"get"},
			}),
			newClusterRoleBinding(name, mark, name, readers))
	}
	if administrators := membersWithRole(department.Spec.Members, v1alpha1.RoleDepartmentAdministrator); len(administrators) > 0 {
		administer := name + ":administrators"
		wanted = append(wanted,
			newClusterRole(administer, mark, rbacv1.PolicyRule{
				APIGroups: []string{v1alpha1.Group}, Resources: []string{"departments/projects"}, ResourceNames: []string{department.Name}, Verbs: []string{"administer"},
			}),
			newClusterRoleBinding(administer, mark, administer, administrators),
			newClusterRoleBinding(name+":project-writers", mark, projectWriterRole, administrators))
	}
	return wanted
}

func newClusterRole(name string, mark map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: mark},
		Rules:      rules,
	}
}

func newClusterRoleBinding(name string, mark map[string]string, role string, members []v1alpha1.Member) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: mark},
		RoleRef:    newRoleRef(role),
		Subjects:   rbacSubjects(members...),
	}
}

// newRoleBinding binds a ClusterRole in a namespace, under the role's own name.
func newRoleBinding(namespace, role string, mark map[string]string, members []v1alpha1.Member) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role, Labels: mark},
		RoleRef:    newRoleRef(role),
		Subjects:   rbacSubjects(members...),
	}
}

func newRoleRef(role string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
}

// projectLabels and ofDepartment are the labels on what is bound for one.
func projectLabels(name string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, v1alpha1.LabelProject: name}
}

func departmentLabels(name string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, v1alpha1.LabelDepartment: name}
}

// rbacSubjects are the members as Kubernetes binds them, sorted, each once.
func rbacSubjects(members ...v1alpha1.Member) []rbacv1.Subject {
	all := make([]rbacv1.Subject, 0, len(members))
	for _, member := range members {
		subject := rbacv1.Subject{Kind: string(member.Kind), Name: member.Name}
		if member.Kind == v1alpha1.MemberServiceAccount {
			subject.Namespace = member.Namespace
		} else {
			subject.APIGroup = rbacv1.GroupName
		}
		all = append(all, subject)
	}
	slices.SortFunc(all, func(a, b rbacv1.Subject) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(all)
}

// membersWithRole are those of the members that have one of the roles.
func membersWithRole(members []v1alpha1.Member, roles ...v1alpha1.Role) []v1alpha1.Member {
	var some []v1alpha1.Member
	for _, member := range members {
		if slices.Contains(roles, member.Role) {
			some = append(some, member)
		}
	}
	return some
}

// ownerMembers are a project's that are known in Kubernetes. They are no members, and
// may have a role besides.
func ownerMembers(project *v1alpha1.Project) []v1alpha1.Member {
	var some []v1alpha1.Member
	for _, owner := range project.Spec.Owners {
		if owner.User != "" {
			some = append(some, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: owner.User, Role: roleOwner})
		}
	}
	return some
}

// roleOwner is what a project's owners have: no role that a member could be given.
const roleOwner v1alpha1.Role = "owner"
