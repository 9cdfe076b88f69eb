// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// parseMember is built from words: "anna l2-researcher", "group:staff viewer",
// "sa:ci/builder editor".
func parseMember(words string) v1alpha1.Member {
	name, role, _ := strings.Cut(words, " ")
	m := v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name, Role: v1alpha1.Role(role)}
	if group, is := strings.CutPrefix(name, "group:"); is {
		m.Kind, m.Name = v1alpha1.MemberGroup, group
	}
	if account, is := strings.CutPrefix(name, "sa:"); is {
		m.Kind = v1alpha1.MemberServiceAccount
		m.Namespace, m.Name, _ = strings.Cut(account, "/")
	}
	return m
}

func parseMembers(all ...string) []v1alpha1.Member {
	var list []v1alpha1.Member
	for _, words := range all {
		list = append(list, parseMember(words))
	}
	return list
}

func newProject(members ...string) *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
		Spec:       v1alpha1.ProjectSpec{Department: "students", Namespace: "ns", Members: parseMembers(members...)},
	}
}

func newDepartment(members ...string) *v1alpha1.Department {
	return &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}, Spec: v1alpha1.DepartmentSpec{Members: parseMembers(members...)}}
}

// describeGrants say what the objects give to whom.
func describeGrants(objects []client.Object) []string {
	var said []string
	for _, object := range objects {
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			for _, r := range o.Rules {
				said = append(said, fmt.Sprintf("%s is to %s %s %s", o.Name, strings.Join(r.Verbs, ","), strings.Join(r.Resources, ","), strings.Join(r.ResourceNames, ",")))
			}
		case *rbacv1.ClusterRoleBinding:
			said = append(said, fmt.Sprintf("%s: %s to %s", o.Name, o.RoleRef.Name, formatSubjects(o.Subjects)))
		case *rbacv1.RoleBinding:
			said = append(said, fmt.Sprintf("%s/%s: %s to %s", o.Namespace, o.Name, o.RoleRef.Name, formatSubjects(o.Subjects)))
		}
	}
	return said
}

func formatSubjects(subjects []rbacv1.Subject) string {
	var all []string
	for _, s := range subjects {
		all = append(all, strings.TrimSuffix(s.Kind+" "+s.Namespace, " ")+" "+s.Name)
	}
	return strings.Join(all, ", ")
}

func TestProjectObjects(t *testing.T) {
	owned := newProject("anna l2-researcher")
	owned.Spec.Owners = []v1alpha1.Owner{{User: "weber"}, {Contact: v1alpha1.Contact{Name: "Nobody here"}}}
	going := newProject("anna l2-researcher")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	late := newProject("anna viewer")
	late.Status.Phase = v1alpha1.ProjectPendingDeletion
	const get = "sluice:project:thesis is to get projects thesis"
	pooled := newProject("anna viewer")
	pooled.Spec.NodePools = []v1alpha1.PoolQuota{{Name: "mig"}, {Name: "dgx"}}
	tests := map[string]struct {
		project    *v1alpha1.Project
		department *v1alpha1.Department
		governed   bool
		want       []string
	}{
		"no members": {project: newProject(), department: newDepartment(), governed: true},
		"members of the project, each once and in one order": {
			project: newProject("zoe l1-researcher", "group:staff l2-researcher", "anna l1-researcher", "sa:ci/builder editor"), governed: true,
			want: []string{
				get,
				"sluice:project:thesis: sluice:project:thesis to Group staff, ServiceAccount ci builder, User anna, User zoe",
				"ns/sluice:editor: sluice:editor to ServiceAccount ci builder",
				"ns/sluice:l1-researcher: sluice:l1-researcher to User anna, User zoe",
				"ns/sluice:l2-researcher: sluice:l2-researcher to Group staff",
			},
		},
		"members get the node pools of the quotas": {
			project: pooled,
			want: []string{
				get, "sluice:project:thesis is to get nodepools dgx,mig",
				"sluice:project:thesis: sluice:project:thesis to User anna",
			},
		},
		"and of the department": {
			project: newProject("anna viewer"), department: newDepartment("dean department-administrator", "anna viewer", "eve department-viewer"), governed: true,
			want: []string{
				get,
				"sluice:project:thesis: sluice:project:thesis to User anna, User dean, User eve",
				"ns/sluice:department-administrator: sluice:department-administrator to User dean",
				"ns/sluice:viewer: sluice:viewer to User anna",
				"ns/sluice:department-viewer: sluice:department-viewer to User eve",
			},
		},
		"research managers, of the project and of its department, write it": {
			project: newProject("rita research-manager", "anna viewer"), department: newDepartment("group:leads research-manager", "dean department-administrator"), governed: true,
			want: []string{
				get,
				"sluice:project:thesis: sluice:project:thesis to Group leads, User anna, User dean, User rita",
				"sluice:project:thesis:research-managers is to manage,patch,update projects thesis",
				"sluice:project:thesis:research-managers: sluice:project:thesis:research-managers to Group leads, User rita",
				"ns/sluice:department-administrator: sluice:department-administrator to User dean",
				"ns/sluice:research-manager: sluice:research-manager to Group leads, User rita",
				"ns/sluice:viewer: sluice:viewer to User anna",
			},
		},
		"and do so before there is a quota": {
			project: newProject("rita research-manager"),
			want: []string{
				get,
				"sluice:project:thesis: sluice:project:thesis to User rita",
				"sluice:project:thesis:research-managers is to manage,patch,update projects thesis",
				"sluice:project:thesis:research-managers: sluice:project:thesis:research-managers to User rita",
			},
		},
		"owners that are known by name": {
			project: owned, governed: true,
			want: []string{
				get,
				"sluice:project:thesis: sluice:project:thesis to User anna, User weber",
				"ns/sluice:l2-researcher: sluice:l2-researcher to User anna",
				"ns/sluice:owner: sluice:owner to User weber",
			},
		},
		"nothing runs in a namespace before its quota": {
			project: newProject("anna l1-researcher"),
			want:    []string{get, "sluice:project:thesis: sluice:project:thesis to User anna"},
		},
		"a project that waits for its end is looked after": {
			project: late, governed: true,
			want: []string{get, "sluice:project:thesis: sluice:project:thesis to User anna", "ns/sluice:viewer: sluice:viewer to User anna"},
		},
		"one that goes is not": {project: going, department: newDepartment("dean department-administrator"), governed: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, describeGrants(ProjectObjects(tc.project, tc.department, tc.governed))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDepartmentObjects(t *testing.T) {
	const get = "sluice:department:students is to get departments students"
	tests := map[string]struct {
		members []string
		want    []string
	}{
		"no members": {},
		"researchers have nothing of the department itself": {members: []string{"anna l1-researcher", "eve viewer", "ed editor"}},
		"viewers read it": {
			members: []string{"eve department-viewer", "rita research-manager"},
			want:    []string{get, "sluice:department:students: sluice:department:students to User eve, User rita"},
		},
		"administrators administer this one, and write projects": {
			members: []string{"group:deans department-administrator"},
			want: []string{
				get,
				"sluice:department:students: sluice:department:students to Group deans",
				"sluice:department:students:administrators is to administer departments/projects students",
				"sluice:department:students:administrators: sluice:department:students:administrators to Group deans",
				"sluice:department:students:project-writers: sluice:project-writer to Group deans",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, describeGrants(DepartmentObjects(newDepartment(tc.members...)))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	going := newDepartment("dean department-administrator")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	if got := DepartmentObjects(going); len(got) > 0 {
		t.Errorf("a department that goes gives %q", describeGrants(got))
	}
}

// What is bound is installed, and lifecycle may bind it and nothing else by name.
func TestRolesAreInstalledAndBindable(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	installed := map[string]bool{}
	var mayBind []string
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		installed[object.GetName()] = true
		if object.GetName() != "sluice-lifecycle" {
			continue
		}
		rules, _ := object.Object["rules"].([]any)
		for _, rule := range rules {
			fields, _ := rule.(map[string]any)
			if verbs, _ := fields["verbs"].([]any); slices.Contains(verbs, any("bind")) {
				bound, _ := fields["resourceNames"].([]any)
				for _, name := range bound {
					mayBind = append(mayBind, fmt.Sprint(name))
				}
			}
		}
	}
	want := []string{projectWriterRole}
	for _, role := range namespaceRoles {
		want = append(want, namePrefix+string(role))
	}
	for _, name := range want {
		if !installed[name] {
			t.Errorf("ClusterRole %s is bound and not installed", name)
		}
	}
	slices.Sort(want)
	slices.Sort(mayBind)
	if diff := cmp.Diff(want, mayBind); diff != "" {
		t.Errorf("what lifecycle may bind (-bound +allowed)\n%s", diff)
	}
}

// Lifecycle gives no right that it does not hold: the API server would refuse it.
func TestLifecycleHoldsPermissionsItGrants(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	var own []rbacv1.PolicyRule
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" || object.GetName() != "sluice-lifecycle" {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		own = role.Rules
	}
	holds := func(group, resource, verb string) bool {
		return slices.ContainsFunc(own, func(r rbacv1.PolicyRule) bool {
			return len(r.ResourceNames) == 0 && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	everybody := []string{"dean department-administrator", "rita research-manager", "eve department-viewer", "ed editor", "anna l1-researcher"}
	given := 0
	for _, object := range append(ProjectObjects(newProject(everybody...), nil, true), DepartmentObjects(newDepartment(everybody...))...) {
		role, is := object.(*rbacv1.ClusterRole)
		if !is {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				given++
				if !holds(rule.APIGroups[0], rule.Resources[0], verb) {
					t.Errorf("ClusterRole %s gives %s %s, which lifecycle does not hold", role.Name, verb, rule.Resources[0])
				}
			}
		}
	}
	if given == 0 {
		t.Error("nothing is given")
	}
}
