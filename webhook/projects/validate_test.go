// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

// change makes a project different.
type change = func(*v1alpha1.Project)

func project(changes ...change) *v1alpha1.Project {
	p := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
		Spec: v1alpha1.ProjectSpec{
			Department: "students",
			NodePools:  []v1alpha1.PoolQuota{{Name: "dgx"}},
		},
	}
	for _, c := range changes {
		c(p)
	}
	return p
}

func in(namespace string) change {
	return func(p *v1alpha1.Project) { p.Spec.Namespace = namespace }
}

func of(department string) change {
	return func(p *v1alpha1.Project) { p.Spec.Department = department }
}

func named(name string) change { return func(p *v1alpha1.Project) { p.Name = name } }

func on(pool string) change {
	return func(p *v1alpha1.Project) { p.Spec.NodePools[0].Name = pool }
}

func having(guaranteed, limit string) change {
	return func(p *v1alpha1.Project) {
		p.Spec.NodePools[0].GPU = v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}
	}
}

func secured(level v1alpha1.PodSecurity) change {
	return func(p *v1alpha1.Project) { p.Spec.PodSecurity = level }
}

func with(name string, role v1alpha1.Role) change {
	return func(p *v1alpha1.Project) {
		p.Spec.Members = append(p.Spec.Members, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name, Role: role})
	}
}

func robot(p *v1alpha1.Project) {
	p.Spec.Members = []v1alpha1.Member{{Kind: v1alpha1.MemberServiceAccount, Namespace: p.NamespaceName(), Name: "robot", Role: v1alpha1.RoleEditor}}
}

func ownedBy(user string) change {
	return func(p *v1alpha1.Project) {
		p.Spec.Owners = []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "A", Email: "a@example.org"}, User: user}}
	}
}

func asked(limit string) change {
	return func(p *v1alpha1.Project) { p.Spec.Workloads = limits(limit) }
}

func using(gpus string) change {
	return func(p *v1alpha1.Project) {
		p.Status.NodePools = []v1alpha1.PoolUse{{Name: "dgx", GPUUse: v1alpha1.GPUUse{Allocated: resource.MustParse(gpus)}}}
	}
}

func limits(maxRuntime string) map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits {
	return map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
		v1alpha1.WorkloadInteractive: {MaxRuntime: ptr.To(period.MustParseDuration(maxRuntime))},
	}
}

// world is a department of four guaranteed GPUs, of which a course has three.
func world(changes ...func(*World)) World {
	w := World{
		Department: &v1alpha1.Department{
			ObjectMeta: metav1.ObjectMeta{Name: "students"},
			Spec: v1alpha1.DepartmentSpec{
				NodePools: []v1alpha1.PoolQuota{
					{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("4"), Limit: resource.MustParse("6")}},
					{Name: "dgx-mig"},
				},
				PodSecurity: v1alpha1.PodSecurityBaseline,
				Workloads:   limits("48h"),
			},
		},
		Projects: []v1alpha1.Project{*project(named("course"), having("3", "3")), *project(named("folding"), of("research"), having("9", "9"))},
	}
	for _, c := range changes {
		c(&w)
	}
	return w
}

func there(annotations ...string) func(*World) {
	return func(w *World) {
		w.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "thesis", Annotations: map[string]string{}}}
		for _, project := range annotations {
			w.Namespace.Annotations[v1alpha1.AnnotationAdoptBy] = project
		}
	}
}

func TestValidate(t *testing.T) {
	nobodys := func(w *World) { w.Department = nil }
	exists := func(w *World) { w.Projects = append(w.Projects, *project()) }
	tests := map[string]struct {
		before, project *v1alpha1.Project
		world           World
		wrong           []string // what the one error says
		warns           string
	}{
		"plain":                         {project: project(), world: world()},
		"no department":                 {project: project(), world: world(nobodys), wrong: []string{"spec.department", "students", "no such department"}},
		"tighter":                       {project: project(asked("24h")), world: world()},
		"as tight, otherwise written":   {project: project(asked("2d")), world: world()},
		"looser":                        {project: project(asked("49h")), world: world(), wrong: []string{"spec.workloads[interactive].maxRuntime", "49h", "48h", "tighten"}},
		"looser, at an update":          {before: project(), project: project(asked("49h")), world: world(), wrong: []string{"maxRuntime"}},
		"a pool that it has not":        {project: project(on("h200")), world: world(), wrong: []string{"spec.nodePools[0].name", "h200", `"dgx", "dgx-mig"`}},
		"an existing namespace":         {project: project(), world: world(there()), wrong: []string{"spec.namespace", "thesis", "kubectl annotate"}},
		"handed over":                   {project: project(), world: world(there("thesis"))},
		"one of that name exists":       {project: project(), world: world(there(), exists)},
		"an update in its own":          {before: project(), project: project(), world: world(there(), exists)},
		"kube-system":                   {project: project(in("kube-system")), world: world(), wrong: []string{"spec.namespace", "kube-system", "system"}},
		"Sluice's own":                  {project: project(in("sluice-system")), world: world(), wrong: []string{"spec.namespace", "sluice-system"}},
		"one that another names":        {project: project(in("course")), world: world(), wrong: []string{"spec.namespace", "course", "project course"}},
		"as much as is left":            {project: project(having("1", "6")), world: world()},
		"more than is left":             {project: project(having("1500m", "6")), world: world(), wrong: []string{"spec.nodePools[0].gpu.guaranteed", "1500m", "is guaranteed 4 GPUs in node pool dgx", "promised 3 to other projects (course 3)", "1 is left"}},
		"a higher limit":                {project: project(having("1", "7")), world: world(), wrong: []string{"spec.nodePools[0].gpu.limit", "7", "department students", "6 GPUs"}},
		"moved to where there is room":  {before: project(of("research"), having("9", "9")), project: project(having("1", "6")), world: world()},
		"moved with all that it had":    {before: project(of("research"), having("2", "6")), project: project(having("2", "6")), world: world(), wrong: []string{"1 is left"}},
		"looser Pod Security":           {project: project(secured("privileged")), world: world(), wrong: []string{"spec.podSecurity", "privileged", "baseline"}},
		"stricter Pod Security":         {project: project(secured("restricted")), world: world()},
		"looser of old":                 {before: project(secured("privileged")), project: project(secured("privileged"), asked("1h")), world: world()},
		"looser where it comes to":      {before: project(of("research"), secured("privileged")), project: project(secured("privileged")), world: world(), wrong: []string{"spec.podSecurity"}},
		"a member":                      {project: project(with("kim@example.org", v1alpha1.RoleEditor)), world: world()},
		"a member who is no person":     {project: project(with("system:admin", v1alpha1.RoleEditor)), world: world(), wrong: []string{"spec.members[0].name", "system:admin"}},
		"a service account of its own":  {project: project(robot), world: world(), warns: "whoever may run pods in project thesis (namespace thesis) will have the role editor"},
		"a robot that was there before": {before: project(robot), project: project(robot, asked("1h")), world: world()},
		"an owner who is no person":     {project: project(ownedBy("system:kube-scheduler")), world: world(), wrong: []string{"spec.owners[0].user", "an owner is a person"}},
		"cut below its use":             {before: project(having("0", "4"), using("3")), project: project(having("0", "2")), world: world(), warns: "spec.nodePools[0].gpu: it uses 3 GPUs of node pool dgx, 1 more than it may from now on"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := Validate(tc.before, tc.project, access.OverDepartment, tc.world)
			if (len(tc.wrong) == 0) != (len(errs) == 0) || len(errs) > 1 {
				t.Fatalf("errors = %v, want what says %q", errs, tc.wrong)
			}
			for _, want := range tc.wrong {
				if !strings.Contains(errs[0].Error(), want) {
					t.Errorf("error %q does not say %q", errs[0], want)
				}
			}
			if got := strings.Join(warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings = %q, want %q", got, tc.warns)
			}
		})
	}
}

// All that is wrong is said at once.
func TestValidateSaysEverything(t *testing.T) {
	p := project(in("default"), on("h200"), asked("99d"), secured("privileged"), ownedBy("system:x"), with("system:x", v1alpha1.RoleViewer))
	if errs, _ := Validate(nil, p, access.OverDepartment, world()); len(errs) != 6 {
		t.Errorf("errors = %v, want six", errs)
	}
}
