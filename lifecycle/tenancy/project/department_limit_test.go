// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// newLimited returns a project of department students with a limit of 1 GPU in node pool dgx.
func newLimited(name string, second int) *v1alpha1.Project {
	p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(occupiedAt.Add(time.Duration(second) * time.Second))}}
	p.Spec.Department, p.Spec.NodePools = "students", []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("1")}}}
	return p
}

// Guards invariant 3 of the design: of projects that are created at the same time, only as many get a
// quota as the department's limit allows, the older ones first; and a project that has one keeps it.
func TestDepartmentLimitAtCreation(t *testing.T) {
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}}
	department.Spec.NodePools = newLimited("", 0).Spec.NodePools
	allowed := department.DeepCopy()
	allowed.Spec.Oversubscription = v1alpha1.OversubscriptionAllow
	governed := newLimited("governed", 9)
	governed.Status.NodePools = []v1alpha1.PoolUsage{{Name: "dgx"}}
	for name, tc := range map[string]struct {
		department *v1alpha1.Department
		scheduler  v1alpha1.Scheduler
		projects   []*v1alpha1.Project
		check      int
		refused    bool
	}{
		"the older":            {department, v1alpha1.SchedulerKube, []*v1alpha1.Project{newLimited("b", 0), newLimited("a", 1)}, 0, false},
		"the newer":            {department, v1alpha1.SchedulerKube, []*v1alpha1.Project{newLimited("b", 0), newLimited("a", 1)}, 1, true},
		"by name in a second":  {department, v1alpha1.SchedulerKube, []*v1alpha1.Project{newLimited("b", 0), newLimited("a", 0)}, 0, true},
		"before one that has":  {department, v1alpha1.SchedulerKube, []*v1alpha1.Project{newLimited("a", 0), governed}, 0, true},
		"one that has a quota": {department, v1alpha1.SchedulerKube, []*v1alpha1.Project{newLimited("a", 0), governed}, 1, false},
		"oversubscription":     {allowed, v1alpha1.SchedulerKube, []*v1alpha1.Project{newLimited("b", 0), newLimited("a", 1)}, 1, false},
		"queues":               {department, v1alpha1.SchedulerKueue, []*v1alpha1.Project{newLimited("b", 0), newLimited("a", 1)}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newLimitedReconciler(t, tc.scheduler, tc.projects...)
			found, err := r.checkDepartmentLimit(t.Context(), tc.projects[tc.check], tc.department)
			if err != nil || (found != nil) != tc.refused {
				t.Fatalf("%+v, %v; want refused %v", found, err, tc.refused)
			}
			const want = "department students is limited to 1 GPU in node pool dgx, where each project is counted alone, and has promised 1 to other projects ("
			if found != nil && (found.reason != v1alpha1.ReasonDepartmentLimitExceeded || !strings.HasPrefix(found.message, want)) {
				t.Errorf("%+v, want %q", found, want)
			}
		})
	}
}

// Guards invariant 3 of the design, for concurrent passes and projects of the same second.
func TestDepartmentLimitAtConcurrentCreation(t *testing.T) {
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}}
	department.Spec.NodePools = newLimited("", 0).Spec.NodePools
	projects := []*v1alpha1.Project{newLimited("a", 0), newLimited("b", 0), newLimited("c", 0), newLimited("d", 0)}
	r := newLimitedReconciler(t, v1alpha1.SchedulerKube, projects...)
	var granted atomic.Int64
	var all sync.WaitGroup
	for range 5 {
		for _, p := range projects {
			all.Go(func() {
				if found, err := r.checkDepartmentLimit(context.Background(), p, department); err != nil {
					t.Error(err)
				} else if found == nil && p.Name != "a" {
					granted.Add(1)
				}
			})
		}
	}
	all.Wait()
	if granted.Load() > 0 || !r.granted.names["a"] {
		t.Errorf("granted %v, want the first alone", r.granted.names)
	}
}

func newLimitedReconciler(t *testing.T, scheduler v1alpha1.Scheduler, projects ...*v1alpha1.Project) *Reconciler {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Spec: v1alpha1.NodePoolSpec{Scheduler: scheduler}}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByDepartment, func(object client.Object) []string {
			project, _ := object.(*v1alpha1.Project)
			return []string{project.Spec.Department}
		})
	for _, p := range projects {
		builder = builder.WithObjects(p.DeepCopy())
	}
	return &Reconciler{Client: builder.Build()}
}
