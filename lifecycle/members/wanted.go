// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// prefix begins the names of all that is bound here, and of what is bound.
const prefix = "sluice:"

// projectWriter is the ClusterRole to write Projects, which is installed.
const projectWriter = prefix + "project-writer"

// roles are all that are bound in a project's namespace.
var roles = []v1alpha1.Role{
	v1alpha1.RoleDepartmentAdministrator, v1alpha1.RoleEditor, v1alpha1.RoleResearchManager,
	v1alpha1.RoleL1Researcher, v1alpha1.RoleL2Researcher, v1alpha1.RoleMLEngineer,
	v1alpha1.RoleViewer, v1alpha1.RoleDepartmentViewer, roleOwner,
}

// OfProject are the rights that a project's members have: to get the Project by
// its name; for its research managers to write it, of which admission lets through
// its people and quotas; and, in its namespace where that is governed, those of
// their roles. The
// department may be nil, where it is missing. A project that is being deleted has
// no members any more.
func OfProject(project *v1alpha1.Project, department *v1alpha1.Department, governed bool) []client.Object {
	if !project.DeletionTimestamp.IsZero() {
		return nil
	}
	all := slices.Concat(project.Spec.Members, owners(project))
	if department != nil {
		all = append(all, department.Spec.Members...)
	}
	if len(all) == 0 {
		return nil
	}
	mark := ofProject(project.Name)
	name := prefix + "project:" + project.Name
	wanted := []client.Object{
		clusterRole(name, mark, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.Group}, Resources: []string{"projects"}, ResourceNames: []string{project.Name}, Verbs: []string{"get"},
		}),
		clusterBinding(name, mark, name, all),
	}
	if managers := with(all, v1alpha1.RoleResearchManager); len(managers) > 0 {
		manage := name + ":research-managers"
		wanted = append(wanted,
			clusterRole(manage, mark, rbacv1.PolicyRule{
				APIGroups: []string{v1alpha1.Group}, Resources: []string{"projects"}, ResourceNames: []string{project.Name}, Verbs: []string{"manage", "patch", "update"},
			}),
			clusterBinding(manage, mark, manage, managers))
	}
	if !governed {
		return wanted
	}
	for _, role := range roles {
		if some := with(all, role); len(some) > 0 {
			wanted = append(wanted, binding(project.NamespaceName(), prefix+string(role), mark, some))
		}
	}
	return wanted
}

// OfDepartment are the rights that a department's members have beside those in its
// projects: those who look after it, to get it by its name; its administrators, to
// administer it and to write Projects, of which admission lets through those of
// their departments.
func OfDepartment(department *v1alpha1.Department) []client.Object {
	if !department.DeletionTimestamp.IsZero() {
		return nil
	}
	mark := ofDepartment(department.Name)
	name := prefix + "department:" + department.Name
	var wanted []client.Object
	if readers := with(department.Spec.Members, v1alpha1.RoleDepartmentAdministrator, v1alpha1.RoleResearchManager, v1alpha1.RoleDepartmentViewer); len(readers) > 0 {
		wanted = append(wanted,
			clusterRole(name, mark, rbacv1.PolicyRule{
				APIGroups: []string{v1alpha1.Group}, Resources: []string{"departments"}, ResourceNames: []string{department.Name}, Verbs: []string{"get"},
			}),
			clusterBinding(name, mark, name, readers))
	}
	if administrators := with(department.Spec.Members, v1alpha1.RoleDepartmentAdministrator); len(administrators) > 0 {
		administer := name + ":administrators"
		wanted = append(wanted,
			clusterRole(administer, mark, rbacv1.PolicyRule{
				APIGroups: []string{v1alpha1.Group}, Resources: []string{"departments/projects"}, ResourceNames: []string{department.Name}, Verbs: []string{"administer"},
			}),
			clusterBinding(administer, mark, administer, administrators),
			clusterBinding(name+":project-writers", mark, projectWriter, administrators))
	}
	return wanted
}

func clusterRole(name string, mark map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: mark},
		Rules:      rules,
	}
}

func clusterBinding(name string, mark map[string]string, role string, members []v1alpha1.Member) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: mark},
		RoleRef:    reference(role),
		Subjects:   subjects(members...),
	}
}

// binding binds a ClusterRole in a namespace, under the role's own name.
func binding(namespace, role string, mark map[string]string, members []v1alpha1.Member) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role, Labels: mark},
		RoleRef:    reference(role),
		Subjects:   subjects(members...),
	}
}

func reference(role string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
}

// ofProject and ofDepartment are the labels on what is bound for one.
func ofProject(name string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, v1alpha1.LabelProject: name}
}

func ofDepartment(name string) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, v1alpha1.LabelDepartment: name}
}
