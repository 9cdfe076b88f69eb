// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation"
)

// projectOption changes a project.
type projectOption = func(*v1alpha1.Project)

func newProject(changes ...projectOption) *v1alpha1.Project {
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

func withNamespace(namespace string) projectOption {
	return func(p *v1alpha1.Project) { p.Spec.Namespace = namespace }
}

func withDepartment(department string) projectOption {
	return func(p *v1alpha1.Project) { p.Spec.Department = department }
}

func withName(name string) projectOption { return func(p *v1alpha1.Project) { p.Name = name } }

func withPool(pool string) projectOption {
	return func(p *v1alpha1.Project) { p.Spec.NodePools[0].Name = pool }
}

func withQuota(guaranteed, limit string) projectOption {
	return func(p *v1alpha1.Project) {
		p.Spec.NodePools[0].GPU = v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}
	}
}

func withPodSecurity(level v1alpha1.PodSecurity) projectOption {
	return func(p *v1alpha1.Project) { p.Spec.PodSecurity = level }
}

func withObjects(name string, limit v1alpha1.ObjectLimit) projectOption {
	return func(p *v1alpha1.Project) { p.Spec.Objects = v1alpha1.ObjectLimits{name: limit} }
}

func withMember(name string, role v1alpha1.Role) projectOption {
	return func(p *v1alpha1.Project) {
		p.Spec.Members = append(p.Spec.Members, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name, Role: role})
	}
}

func withServiceAccount(p *v1alpha1.Project) {
	p.Spec.Members = []v1alpha1.Member{{Kind: v1alpha1.MemberServiceAccount, Namespace: p.NamespaceName(), Name: "robot", Role: v1alpha1.RoleEditor}}
}

func withOwner(user string) projectOption {
	return func(p *v1alpha1.Project) {
		p.Spec.Owners = []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "A", Email: "a@example.org"}, User: user}}
	}
}

func withMaxRuntime(limit string) projectOption {
	return func(p *v1alpha1.Project) { p.Spec.Workloads = maxRuntimeLimits(limit) }
}

func withUsage(gpus string) projectOption {
	return func(p *v1alpha1.Project) {
		p.Status.NodePools = []v1alpha1.PoolUsage{{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Allocated: resource.MustParse(gpus)}}}
	}
}

func maxRuntimeLimits(maxRuntime string) map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits {
	return map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
		v1alpha1.WorkloadInteractive: {MaxRuntime: ptr.To(period.MustParseDuration(maxRuntime))},
	}
}

// newClusterState returns a department with four guaranteed GPUs, of which project course has three.
func newClusterState(changes ...func(*ClusterState)) ClusterState {
	w := ClusterState{
		Department: &v1alpha1.Department{
			ObjectMeta: metav1.ObjectMeta{Name: "students"},
			Spec: v1alpha1.DepartmentSpec{
				NodePools: []v1alpha1.PoolQuota{
					{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("4"), Limit: resource.MustParse("6")}},
					{Name: "dgx-mig"},
				},
				PodSecurity: v1alpha1.PodSecurityBaseline,
				Workloads:   maxRuntimeLimits("48h"),
			},
		},
		Projects: []v1alpha1.Project{*newProject(withName("course"), withQuota("3", "3")), *newProject(withName("folding"), withDepartment("research"), withQuota("9", "9"))},
	}
	for _, c := range changes {
		c(&w)
	}
	return w
}

func withExistingNamespace(annotations ...string) func(*ClusterState) {
	return func(w *ClusterState) {
		w.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "thesis", Annotations: map[string]string{}}}
		for _, project := range annotations {
			w.Namespace.Annotations[v1alpha1.AnnotationAdoptBy] = project
		}
	}
}

func TestValidate(t *testing.T) {
	nobodys := func(w *ClusterState) { w.Department = nil }
	exists := func(w *ClusterState) { w.Projects = append(w.Projects, *newProject()) }
	tests := map[string]struct {
		before, project *v1alpha1.Project
		world           ClusterState
		wrong           []string // parts of the one error
		warns           string
	}{
		"plain":                         {project: newProject(), world: newClusterState()},
		"no department":                 {project: newProject(), world: newClusterState(nobodys), wrong: []string{"spec.department", "students", "no such department"}},
		"tighter":                       {project: newProject(withMaxRuntime("24h")), world: newClusterState()},
		"as tight, otherwise written":   {project: newProject(withMaxRuntime("2d")), world: newClusterState()},
		"looser":                        {project: newProject(withMaxRuntime("49h")), world: newClusterState(), wrong: []string{"spec.workloads[interactive].maxRuntime", "49h", "48h", "tighten"}},
		"looser, at an update":          {before: newProject(), project: newProject(withMaxRuntime("49h")), world: newClusterState(), wrong: []string{"maxRuntime"}},
		"a pool that it has not":        {project: newProject(withPool("h200")), world: newClusterState(), wrong: []string{"spec.nodePools[0].name", "h200", `"dgx", "dgx-mig"`}},
		"an existing namespace":         {project: newProject(), world: newClusterState(withExistingNamespace()), wrong: []string{"spec.namespace", "thesis", "kubectl annotate"}},
		"handed over":                   {project: newProject(), world: newClusterState(withExistingNamespace("thesis"))},
		"one of that name exists":       {project: newProject(), world: newClusterState(withExistingNamespace(), exists)},
		"an update in its own":          {before: newProject(), project: newProject(), world: newClusterState(withExistingNamespace(), exists)},
		"kube-system":                   {project: newProject(withNamespace("kube-system")), world: newClusterState(), wrong: []string{"spec.namespace", "kube-system", "system"}},
		"Sluice's own":                  {project: newProject(withNamespace("sluice-system")), world: newClusterState(), wrong: []string{"spec.namespace", "sluice-system"}},
		"one that another names":        {project: newProject(withNamespace("course")), world: newClusterState(), wrong: []string{"spec.namespace", "course", "project course"}},
		"as much as is left":            {project: newProject(withQuota("1", "6")), world: newClusterState()},
		"more than is left":             {project: newProject(withQuota("1500m", "6")), world: newClusterState(), wrong: []string{"spec.nodePools[0].gpu.guaranteed", "1500m", "is guaranteed 4 GPUs in node pool dgx", "promised 3 to other projects (course 3)", "1 is left"}},
		"a higher limit":                {project: newProject(withQuota("1", "7")), world: newClusterState(), wrong: []string{"spec.nodePools[0].gpu.limit", "7", "department students", "6 GPUs"}},
		"moved to where there is room":  {before: newProject(withDepartment("research"), withQuota("9", "9")), project: newProject(withQuota("1", "6")), world: newClusterState()},
		"moved with all that it had":    {before: newProject(withDepartment("research"), withQuota("2", "6")), project: newProject(withQuota("2", "6")), world: newClusterState(), wrong: []string{"1 is left"}},
		"fewer objects":                 {project: newProject(withObjects("pods", 499)), world: newClusterState()},
		"objects without a limit":       {project: newProject(withObjects("count/leases.coordination.k8s.io", 5)), world: newClusterState()},
		"more objects":                  {project: newProject(withObjects("pods", 501)), world: newClusterState(), wrong: []string{"spec.objects[pods]", "501", "500", "tighten"}},
		"more objects of old":           {before: newProject(withObjects("pods", 501)), project: newProject(withObjects("pods", 501), withMaxRuntime("1h")), world: newClusterState()},
		"looser Pod Security":           {project: newProject(withPodSecurity("privileged")), world: newClusterState(), wrong: []string{"spec.podSecurity", "privileged", "baseline"}},
		"stricter Pod Security":         {project: newProject(withPodSecurity("restricted")), world: newClusterState()},
		"looser of old":                 {before: newProject(withPodSecurity("privileged")), project: newProject(withPodSecurity("privileged"), withMaxRuntime("1h")), world: newClusterState()},
		"looser where it comes to":      {before: newProject(withDepartment("research"), withPodSecurity("privileged")), project: newProject(withPodSecurity("privileged")), world: newClusterState(), wrong: []string{"spec.podSecurity"}},
		"a member":                      {project: newProject(withMember("kim@example.org", v1alpha1.RoleEditor)), world: newClusterState()},
		"a member who is no person":     {project: newProject(withMember("system:admin", v1alpha1.RoleEditor)), world: newClusterState(), wrong: []string{"spec.members[0].name", "system:admin"}},
		"a service account of its own":  {project: newProject(withServiceAccount), world: newClusterState(), warns: "every user who can run pods in project thesis (namespace thesis) will have the role editor"},
		"a robot that was there before": {before: newProject(withServiceAccount), project: newProject(withServiceAccount, withMaxRuntime("1h")), world: newClusterState()},
		"an owner who is no person":     {project: newProject(withOwner("system:kube-scheduler")), world: newClusterState(), wrong: []string{"spec.owners[0].user", "an owner is a person"}},
		"cut below its use":             {before: newProject(withQuota("0", "4"), withUsage("3")), project: newProject(withQuota("0", "2")), world: newClusterState(), warns: "spec.nodePools[0].gpu: it uses 3 GPUs of node pool dgx, 1 more than the new limit"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := Validate(tc.before, tc.project, validation.AuthorityDepartment, tc.world)
			if (len(tc.wrong) == 0) != (len(errs) == 0) || len(errs) > 1 {
				t.Fatalf("errors = %v, want one with %q", errs, tc.wrong)
			}
			for _, want := range tc.wrong {
				if !strings.Contains(errs[0].Error(), want) {
					t.Errorf("error %q want %q in it", errs[0], want)
				}
			}
			if got := strings.Join(warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings = %q, want %q", got, tc.warns)
			}
		})
	}
}

// Validate returns all errors at once.
func TestValidateReportsAllErrors(t *testing.T) {
	p := newProject(withNamespace("default"), withPool("h200"), withMaxRuntime("99d"), withPodSecurity("privileged"), withOwner("system:x"), withMember("system:x", v1alpha1.RoleViewer))
	if errs, _ := Validate(nil, p, validation.AuthorityDepartment, newClusterState()); len(errs) != 6 {
		t.Errorf("errors = %v, want six", errs)
	}
}
