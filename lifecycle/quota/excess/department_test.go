// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// addDepartment adds department students, limited to 3 GPUs in node pool dgx, with project thesis and
// project course in namespace lab, each limited to 2.
func (e *testEnv) addDepartment(t *testing.T, scheduler v1alpha1.Scheduler) {
	t.Helper()
	limit := func(gpus string) []v1alpha1.PoolQuota {
		return []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse(gpus)}}}
	}
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students", UID: "students"}}
	department.Spec.NodePools, department.Spec.Oversubscription = limit("3"), v1alpha1.OversubscriptionAllow
	var pool v1alpha1.NodePool
	if err := e.Client.Get(t.Context(), types.NamespacedName{Name: "dgx"}, &pool); err != nil {
		t.Fatal(err)
	}
	pool.Spec.Scheduler = scheduler
	course := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "course", UID: "course"}}
	course.Spec.Department, course.Spec.NodePools = "students", limit("2")
	course.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "lab"}
	var thesis v1alpha1.Project
	if err := e.Client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &thesis); err != nil {
		t.Fatal(err)
	}
	thesis.Spec.Department, thesis.Spec.NodePools = "students", limit("2")
	if err := e.Client.Update(t.Context(), &thesis); err != nil {
		t.Fatal(err)
	}
	for _, create := range []func() error{
		func() error { return e.Client.Create(t.Context(), department) },
		func() error { return e.Client.Update(t.Context(), &pool) },
		func() error { return e.Client.Create(t.Context(), course) },
		func() error { return e.Client.Status().Update(t.Context(), course) },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *testEnv) reconcileDepartmentOnce(t *testing.T) *metav1.Condition {
	t.Helper()
	name := types.NamespacedName{Name: "students"}
	if _, err := e.reconcileDepartment(t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
		t.Fatal(err)
	}
	var department v1alpha1.Department
	if err := e.Client.Get(t.Context(), name, &department); err != nil {
		t.Fatal(err)
	}
	return meta.FindStatusCondition(department.Status.Conditions, v1alpha1.ConditionLimitExceeded)
}

// Guards invariant 3 of the design: where each project is counted alone, projects within their limits
// do not hold more than their department together.
func TestDepartmentLimitIsHeld(t *testing.T) {
	for _, scheduler := range []v1alpha1.Scheduler{v1alpha1.SchedulerKube, v1alpha1.SchedulerYuniKorn} {
		t.Run(string(scheduler), func(t *testing.T) {
			e := newTestEnv(t)
			e.addDepartment(t, scheduler)
			e.add(60, "a", "b")
			e.add(61, "c")
			e.add(62, "d")
			e.pods[2].Namespace, e.pods[3].Namespace = "lab", "lab"
			e.pods[2].Project, e.pods[3].Project = "course", "course"
			for range 2 {
				if c := e.reconcileDepartmentOnce(t); c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNewestPodsEnded ||
					!strings.Contains(c.Message, "department students held 4 GPUs of node pool dgx, 1 GPU more than its limit of 3 GPUs") {
					t.Fatalf("condition %+v", c)
				}
			}
			if !slices.Equal(e.evicted, []string{"d"}) || len(e.recorder.Events) != 2 {
				t.Errorf("evicted %v, with %d events; want pod d and an event on it and on the department", e.evicted, len(e.recorder.Events))
			}
			if _, err := e.reconcileOnce(t); err != nil || len(e.evicted) != 1 {
				t.Errorf("project thesis is within its limit: evicted %v, %v", e.evicted, err)
			}
			e.pods = e.pods[:3]
			if c := e.reconcileDepartmentOnce(t); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "ended the newest: pod lab/d") {
				t.Errorf("after it: %+v", c)
			}
		})
	}
}

// Guards invariants 11 and 12 of the design: what exceeds the limit of a project is that project's excess, and
// no pod of another project of the department ends for it.
func TestDepartmentLeavesExcessToProject(t *testing.T) {
	e := newTestEnv(t)
	e.addDepartment(t, v1alpha1.SchedulerKube)
	e.add(60, "a", "b")
	e.add(61, "c", "d") // above the limit of project thesis
	e.add(62, "other")  // the newest, within the limit of the department
	e.pods[4].Namespace, e.pods[4].Project = "lab", "course"
	if c := e.reconcileDepartmentOnce(t); c != nil || len(e.evicted) > 0 {
		t.Errorf("the department has condition %+v, evicted %v", c, e.evicted)
	}
	if c, err := e.reconcileOnce(t); err != nil || c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("the project has condition %+v, %v", c, err)
	}
	if slices.Sort(e.evicted); !slices.Equal(e.evicted, []string{"c", "d"}) {
		t.Errorf("evicted %v, want those above the project's limit", e.evicted)
	}
}

// Guards invariant 12 of the design: a queue that counts the department ends nothing here, and neither do
// the pods of a project that moves into the department.
func TestDepartmentLimitKeepsOthers(t *testing.T) {
	e := newTestEnv(t)
	e.addDepartment(t, v1alpha1.SchedulerKueue)
	e.add(60, "a", "b", "c", "d")
	if c := e.reconcileDepartmentOnce(t); c != nil {
		t.Errorf("with Kueue: %+v", c)
	}
	e = newTestEnv(t)
	e.addDepartment(t, v1alpha1.SchedulerKube)
	e.departments["students"] = departmentState{limits: limits{"students/dgx": {Milli: 3000, Since: testStart}}}
	e.add(-10, "a", "b", "c", "d")
	if c := e.reconcileDepartmentOnce(t); c == nil || c.Reason != v1alpha1.ReasonLimitLowered || len(e.evicted) > 0 {
		t.Errorf("with pods from before its projects joined it: %+v, evicted %v", c, e.evicted)
	}
}

// departmentObjects returns the objects of addDepartment, last written some minutes before testStart.
func (e *testEnv) departmentObjects(t *testing.T, department, pool, projects int) (
	*v1alpha1.Department, []v1alpha1.NodePool, []v1alpha1.Project,
) {
	t.Helper()
	list := func(into client.ObjectList, minutes int) {
		t.Helper()
		written := metav1.NewTime(testStart.Add(-time.Duration(minutes) * time.Minute))
		if err := e.Client.List(t.Context(), into); err != nil {
			t.Fatal(err)
		}
		_ = meta.EachListItem(into, func(object runtime.Object) error {
			object.(client.Object).SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: &written}})
			return nil
		})
	}
	var departments v1alpha1.DepartmentList
	var pools v1alpha1.NodePoolList
	var all v1alpha1.ProjectList
	list(&departments, department)
	list(&pools, pool)
	list(&all, projects)
	return &departments.Items[0], pools.Items, all.Items
}

// Guards invariant 3 of the design: after a start of the process a department's limit is in force since
// what it follows from was last written, so that pods that were admitted above it meanwhile end. Pods that
// may be older than the limit, or than their project's place in the department, continue.
func TestDepartmentLimitAfterRestart(t *testing.T) {
	now := testStart
	for name, tc := range map[string]struct{ department, pool, projects, limit, counted int }{
		"all are old":           {60, 60, 60, 60, 60},
		"the limit is newer":    {5, 60, 60, 5, 60},
		"the pool is newer":     {60, 5, 60, 5, 60},
		"the projects moved in": {60, 60, 5, 60, 5},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			e.addDepartment(t, v1alpha1.SchedulerKube)
			department, pools, projects := e.departmentObjects(t, tc.department, tc.pool, tc.projects)
			for range 2 { // what was remembered stays
				scopes := e.departmentScopes(department, projects, pools, now)
				if len(scopes) != 1 {
					t.Fatalf("limits %+v", scopes)
				}
				limit := scopes[0].limit
				if want := now.Add(-time.Duration(tc.limit)*time.Minute + limitSettleTime); !limit.Since.Equal(want) {
					t.Errorf("in force since %s, want %s", limit.Since, want)
				}
				if want := now.Add(-time.Duration(tc.counted) * time.Minute); !limit.CountedSince["work"].Equal(want) || !limit.CountedSince["lab"].Equal(want) {
					t.Errorf("counted since %s, want %s", limit.CountedSince, want)
				}
				department, pools, projects = e.departmentObjects(t, 0, 0, 0) // no limit is lower
			}
		})
	}
}

// Guards invariant 12 of the design: a node pool whose scheduler counted for a while has its limit in force
// since it counts no more.
func TestDepartmentLimitAfterOtherScheduler(t *testing.T) {
	e := newTestEnv(t)
	e.addDepartment(t, v1alpha1.SchedulerKube)
	department, pools, projects := e.departmentObjects(t, 60, 60, 60)
	e.departmentScopes(department, projects, pools, testStart)
	pools[0].Spec.Scheduler = v1alpha1.SchedulerKueue
	if scopes := e.departmentScopes(department, projects, pools, testStart); len(scopes) > 0 {
		t.Fatalf("Kueue counts, and so do %+v", scopes)
	}
	_, pools, _ = e.departmentObjects(t, 60, 1, 60)
	scopes := e.departmentScopes(department, projects, pools, testStart)
	if want := testStart.Add(limitSettleTime - time.Minute); len(scopes) != 1 || !scopes[0].limit.Since.Equal(want) {
		t.Errorf("limits %+v, want one in force since %s", scopes, want)
	}
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}}
	other := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if got := e.requestsForPool(t.Context(), pool); len(got) != 1 || got[0].Name != "students" || len(e.requestsForPool(t.Context(), other)) > 0 {
		t.Errorf("the node pool concerns %v", got)
	}
}

func TestCacheTransform(t *testing.T) {
	at := func(second int) *metav1.Time {
		return &metav1.Time{Time: testStart.Add(time.Duration(second) * time.Second)}
	}
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Time: at(1), FieldsV1: metav1.NewFieldsV1("{}")},
		{Manager: "argocd", Time: at(3), FieldsV1: metav1.NewFieldsV1("{}")},
		{Manager: "sluice-lifecycle", Subresource: "status", Time: at(9)},
		{Manager: "unknown"},
	}}}
	for range 2 { // an informer may transform an object twice
		if _, err := CacheTransform()(department); err != nil {
			t.Fatal(err)
		}
		if got := department.ManagedFields; len(got) != 1 || !got[0].Time.Equal(at(3)) || got[0].FieldsV1 != nil {
			t.Errorf("managed fields %+v", got)
		}
	}
	project := &v1alpha1.Project{}
	if _, err := CacheTransform()(project); err != nil || len(project.ManagedFields) > 0 || !writtenAt(project, testStart).Equal(testStart) {
		t.Errorf("a project without managed fields: %+v, %v", project.ManagedFields, err)
	}
}

// A pod that replaces one that terminates is not ended for a full department: its controller would create
// it again, and again. Guards invariant 10 of the design.
func TestDepartmentCountsOutTerminatingPods(t *testing.T) {
	e := newTestEnv(t)
	e.addDepartment(t, v1alpha1.SchedulerKube)
	e.add(60, "a", "b", "old")
	e.add(61, "new")
	e.pods[2].Deleting, e.pods[2].GraceEndsAt = true, policytime.MachineNow().Add(time.Hour)
	if c := e.reconcileDepartmentOnce(t); c != nil || len(e.evicted) > 0 {
		t.Errorf("condition %+v, evicted %v", c, e.evicted)
	}
}

// While a department is full, a ReplicaSet creates the ended pod again at once, without end. Each pod is ended and counted, and
// the events stay few. Guards invariant 10 of the design.
func TestReportsOfRepeatedExcessAreFew(t *testing.T) {
	e := newTestEnv(t)
	e.addDepartment(t, v1alpha1.SchedulerKube)
	e.recorder = events.NewFakeRecorder(1000)
	e.Events = e.recorder
	e.add(60, "a", "b", "c")
	e.pods[2].Namespace, e.pods[2].Project = "lab", "course"
	for i := range 100 {
		e.add(61, fmt.Sprint("web-", i))
		e.pods[3].Namespace, e.pods[3].Project = "lab", "course" // within the limit of the project
		e.reconcileDepartmentOnce(t)
		e.pods = e.pods[:3]
	}
	if len(e.evicted) != 100 {
		t.Errorf("ended %d pods of 100", len(e.evicted))
	}
	if n := len(e.recorder.Events); n < 2 || n > maxEvents+2 {
		t.Errorf("%d events for 100 pods", n)
	}
}
