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

// namePrefix begins the names of all roles and bindings of Sluice.
const namePrefix = "sluice:"

// projectWriterRole is the installed ClusterRole to write Projects.
const projectWriterRole = namePrefix + "project-writer"

// namespaceRoles are the roles that are bound in a project's namespace.
var namespaceRoles = []v1alpha1.Role{
	v1alpha1.RoleDepartmentAdministrator, v1alpha1.RoleEditor, v1alpha1.RoleResearchManager,
	v1alpha1.RoleL1Researcher, v1alpha1.RoleL2Researcher, v1alpha1.RoleMLEngineer,
	v1alpha1.RoleViewer, v1alpha1.RoleDepartmentViewer, roleOwner,
}

// ProjectObjects returns the roles and bindings of a project's members. They may get
// the Project and its NodePools by name. Its research managers may write it; admission allows them
// only its people and quotas. In its namespace, if that is governed, they have the
// rights of their roles. The department may be nil. A project that is being deleted
// has no members.
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
	labels := projectLabels(project.Name)
	name := namePrefix + "project:" + project.Name
	desired := []client.Object{
		newClusterRole(name, labels, projectRules(project)...),
		newClusterRoleBinding(name, labels, name, all),
	}
	if managers := membersWithRole(all, v1alpha1.RoleResearchManager); len(managers) > 0 {
		manage := name + ":research-managers"
		desired = append(desired,
			newClusterRole(manage, labels, newRule("projects", project.Name, "manage", "patch", "update")),
			newClusterRoleBinding(manage, labels, manage, managers))
	}
	if !governed {
		return desired
	}
	for _, role := range namespaceRoles {
		if members := membersWithRole(all, role); len(members) > 0 {
			desired = append(desired, newRoleBinding(project.NamespaceName(), namePrefix+string(role), labels, members))
		}
	}
	return desired
}

// DepartmentObjects returns the roles and bindings of a department's members, without
// those in its projects. Administrators, managers and viewers may get the Department.
// Administrators may administer it and write Projects; admission allows them only
// those of their departments.
func DepartmentObjects(department *v1alpha1.Department) []client.Object {
	if !department.DeletionTimestamp.IsZero() {
		return nil
	}
	labels := departmentLabels(department.Name)
	name := namePrefix + "department:" + department.Name
	var desired []client.Object
	if readers := membersWithRole(department.Spec.Members, v1alpha1.RoleDepartmentAdministrator, v1alpha1.RoleResearchManager,
		v1alpha1.RoleDepartmentViewer); len(readers) > 0 {
		desired = append(desired,
			newClusterRole(name, labels, newRule("departments", department.Name, "get")),
			newClusterRoleBinding(name, labels, name, readers))
	}
	if administrators := membersWithRole(department.Spec.Members, v1alpha1.RoleDepartmentAdministrator); len(administrators) > 0 {
		administer := name + ":administrators"
		desired = append(desired,
			newClusterRole(administer, labels, newRule("departments/projects", department.Name, "administer")),
			newClusterRoleBinding(administer, labels, administer, administrators),
			newClusterRoleBinding(name+":project-writers", labels, projectWriterRole, administrators))
	}
	return desired
}

// projectRules returns the rules of all members: they get the Project, and the NodePools of its quotas, whose
// GPUs and slices they may use. A NodePool has no addresses of users.
func projectRules(project *v1alpha1.Project) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{newRule("projects", project.Name, "get")}
	var pools []string
	for i := range project.Spec.NodePools {
		pools = append(pools, project.Spec.NodePools[i].Name)
	}
	if len(pools) > 0 {
		slices.Sort(pools)
		rule := newRule("nodepools", "", "get")
		rule.ResourceNames = slices.Compact(pools)
		rules = append(rules, rule)
	}
	return rules
}

// newRule allows verbs on one object of a resource of Sluice.
func newRule(resource, name string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{resource}, ResourceNames: []string{name}, Verbs: verbs}
}

func newClusterRole(name string, labels map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Rules:      rules,
	}
}

func newClusterRoleBinding(name string, labels map[string]string, role string, members []v1alpha1.Member) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		RoleRef:    newRoleRef(role),
		Subjects:   rbacSubjects(members...),
	}
}

// newRoleBinding returns the binding of a ClusterRole in a namespace; it has the role's name.
func newRoleBinding(namespace, role string, labels map[string]string, members []v1alpha1.Member) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role, Labels: labels},
		RoleRef:    newRoleRef(role),
		Subjects:   rbacSubjects(members...),
	}
}

func newRoleRef(role string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
}

// projectLabels and departmentLabels return the labels on the roles and bindings.
func projectLabels(name string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, v1alpha1.LabelProject: name}
}

func departmentLabels(name string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, v1alpha1.LabelDepartment: name}
}

// rbacSubjects returns the members as subjects, sorted and without duplicates.
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

// membersWithRole returns the members that have one of the roles.
func membersWithRole(members []v1alpha1.Member, roles ...v1alpha1.Role) []v1alpha1.Member {
	var selected []v1alpha1.Member
	for _, member := range members {
		if slices.Contains(roles, member.Role) {
			selected = append(selected, member)
		}
	}
	return selected
}

// ownerMembers returns a project's owners that have a Kubernetes user. An owner may
// have a role as a member, too.
func ownerMembers(project *v1alpha1.Project) []v1alpha1.Member {
	var selected []v1alpha1.Member
	for _, owner := range project.Spec.Owners {
		if owner.User != "" {
			selected = append(selected, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: owner.User, Role: roleOwner})
		}
	}
	return selected
}

// roleOwner is the role of a project's owners, which no member can be given.
const roleOwner v1alpha1.Role = "owner"
