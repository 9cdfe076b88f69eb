// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

func project(change ...func(*v1alpha1.Project)) *v1alpha1.Project {
	p := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
		Spec: v1alpha1.ProjectSpec{
			Department: "students",
			NodePools:  []v1alpha1.PoolQuota{{Name: "dgx"}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func limits(maxRuntime string) map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits {
	return map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
		v1alpha1.WorkloadInteractive: {MaxRuntime: ptr.To(period.MustParseDuration(maxRuntime))},
	}
}

func TestValidate(t *testing.T) {
	students := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{{Name: "dgx"}, {Name: "dgx-mig"}},
			Workloads: limits("48h"),
		},
	}
	existing := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}}
	consenting := existing.DeepCopy()
	consenting.Annotations = map[string]string{v1alpha1.AnnotationAdoptBy: "thesis"}
	asked := func(limit string) func(*v1alpha1.Project) {
		return func(p *v1alpha1.Project) { p.Spec.Workloads = limits(limit) }
	}
	in := func(namespace string) func(*v1alpha1.Project) {
		return func(p *v1alpha1.Project) { p.Spec.Namespace = namespace }
	}
	tests := map[string]struct {
		project *v1alpha1.Project
		update  bool
		world   World
		wrong   []string // what the one error says
	}{
		"plain":                        {project: project(), world: World{Department: students}},
		"tighter":                      {project: project(asked("24h")), world: World{Department: students}},
		"as tight, otherwise written":  {project: project(asked("2d")), world: World{Department: students}},
		"no department":                {project: project(), wrong: []string{"spec.department", "students", "no such department"}},
		"looser":                       {project: project(asked("49h")), world: World{Department: students}, wrong: []string{"spec.workloads[interactive].maxRuntime", "49h", "48h", "tighten"}},
		"looser, at an update":         {project: project(asked("49h")), update: true, world: World{Department: students}, wrong: []string{"maxRuntime"}},
		"a pool that it has not":       {project: project(func(p *v1alpha1.Project) { p.Spec.NodePools[0].Name = "h200" }), world: World{Department: students}, wrong: []string{"spec.nodePools[0].name", "h200", `"dgx", "dgx-mig"`}},
		"an existing namespace":        {project: project(), world: World{Department: students, Namespace: existing}, wrong: []string{"spec.namespace", "thesis", "kubectl annotate"}},
		"handed over":                  {project: project(), world: World{Department: students, Namespace: consenting}},
		"one of that name exists":      {project: project(), world: World{Department: students, Namespace: existing, Exists: true}},
		"an update in its own":         {project: project(), update: true, world: World{Department: students, Namespace: existing}},
		"kube-system":                  {project: project(in("kube-system")), world: World{Department: students}, wrong: []string{"spec.namespace", "kube-system", "system"}},
		"one that another names":       {project: project(in("shared")), world: World{Department: students, Rival: "course"}, wrong: []string{"spec.namespace", "shared", "project course"}},
		"somebody else's, not its own": {project: project(in("sluice-system")), world: World{Department: students}, wrong: []string{"spec.namespace", "sluice-system"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs := Validate(tc.project, !tc.update, tc.world)
			if len(tc.wrong) == 0 {
				if len(errs) > 0 {
					t.Fatalf("refused: %v", errs)
				}
				return
			}
			if len(errs) != 1 {
				t.Fatalf("errors = %v, want one", errs)
			}
			for _, want := range tc.wrong {
				if !strings.Contains(errs[0].Error(), want) {
					t.Errorf("error %q does not say %q", errs[0], want)
				}
			}
		})
	}
}

// All that is wrong is said at once.
func TestValidateSaysEverything(t *testing.T) {
	p := project(func(p *v1alpha1.Project) {
		p.Spec.Namespace = "default"
		p.Spec.NodePools[0].Name = "h200"
		p.Spec.Workloads = limits("99d")
	})
	department := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{Workloads: limits("1h")}}
	if errs := Validate(p, true, World{Department: department}); len(errs) != 3 {
		t.Errorf("errors = %v, want three", errs)
	}
}
