// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m, clustertest.InstallKinds) }

// countingClient counts status writes.
type countingClient struct {
	client.Client
	writes int
}

func (c *countingClient) Status() client.SubResourceWriter { c.writes++; return c.Client.Status() }

// statusWriter is one controller with its own field manager.
type statusWriter struct {
	t       *testing.T
	client  *countingClient
	manager string
	cached  func() *ac.DepartmentStatusApplyConfiguration
}

// apply applies the status that the function returns; the answer of the API server
// changes a configuration.
func (w *statusWriter) apply(object *v1alpha1.Department, status func() *ac.DepartmentStatusApplyConfiguration) {
	w.t.Helper()
	cached := ac.Department(object.Name).WithStatus(w.cached())
	if err := apply.Status(w.t.Context(), w.client, w.manager, cached, ac.Department(object.Name).WithStatus(status())); err != nil {
		w.t.Fatal(err)
	}
	w.cached = status
}

func condition(kind, reason string) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: 1,
		LastTransitionTime: metav1.NewTime(policytime.MachineNow()).Rfc3339Copy(),
	}
}

// Two controllers write one status. Each field and condition that one of them leaves
// out is removed; those of the other stay.
func TestStatusHasOneManagerForEachField(t *testing.T) {
	admin := clustertest.Admin(t)
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "status-managers"}, Spec: v1alpha1.DepartmentSpec{
		Contacts: []v1alpha1.Contact{{Name: "A", Email: "a@example.org"}},
	}}
	if err := admin.Create(t.Context(), department); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), department) })
	counting := &countingClient{Client: admin}
	first := &statusWriter{t: t, client: counting, manager: "test-first", cached: ac.DepartmentStatus}
	second := &statusWriter{t: t, client: counting, manager: "test-second", cached: ac.DepartmentStatus}
	all := []metav1.Condition{
		condition(v1alpha1.ConditionReady, "Ready"), condition(v1alpha1.ConditionOversubscribed, "Allowed"),
		condition(v1alpha1.ConditionQueueApplied, "Applied"), condition(v1alpha1.ConditionMembersBound, "Applied"),
	}
	expect := func(step string, projects int32, generation int64, pools []string, conditions ...string) {
		t.Helper()
		var got v1alpha1.Department
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(department), &got); err != nil {
			t.Fatal(err)
		}
		var types, names []string
		for _, c := range got.Status.Conditions {
			types = append(types, c.Type)
		}
		for _, pool := range got.Status.NodePools {
			names = append(names, pool.Name)
		}
		slices.Sort(types)
		slices.Sort(conditions)
		slices.Sort(names)
		if diff := cmp.Diff(conditions, types); diff != "" {
			t.Errorf("%s: conditions (-want +got)\n%s", step, diff)
		}
		if diff := cmp.Diff(pools, names); diff != "" {
			t.Errorf("%s: node pools (-want +got)\n%s", step, diff)
		}
		if got.Status.Projects != projects || got.Status.ObservedGeneration != generation {
			t.Errorf("%s: projects %d, generation %d", step, got.Status.Projects, got.Status.ObservedGeneration)
		}
	}

	ready, oversubscribed := v1alpha1.ConditionReady, v1alpha1.ConditionOversubscribed
	queues, members := v1alpha1.ConditionQueueApplied, v1alpha1.ConditionMembersBound
	first.apply(department, func() *ac.DepartmentStatusApplyConfiguration {
		return ac.DepartmentStatus().WithObservedGeneration(1).WithProjects(2).
			WithNodePools(ac.PoolUsage().WithName("a"), ac.PoolUsage().WithName("b")).
			WithConditions(apply.Conditions(all, ready, oversubscribed)...)
	})
	second.apply(department, func() *ac.DepartmentStatusApplyConfiguration {
		return ac.DepartmentStatus().WithNodePools(ac.PoolUsage().WithName("b")).
			WithConditions(apply.Conditions(all, queues, members)...)
	})
	expect("both", 2, 1, []string{"a", "b"}, ready, oversubscribed, queues, members)

	second.apply(department, func() *ac.DepartmentStatusApplyConfiguration {
		return ac.DepartmentStatus().WithConditions(apply.Conditions(all, queues)...)
	})
	expect("the second leaves out its condition and node pool", 2, 1, []string{"a", "b"}, ready, oversubscribed, queues)

	first.apply(department, func() *ac.DepartmentStatusApplyConfiguration {
		return ac.DepartmentStatus().WithObservedGeneration(2).WithNodePools(ac.PoolUsage().WithName("b")).
			WithConditions(apply.Conditions(all, ready)...)
	})
	expect("the first leaves out a field, a node pool and a condition", 0, 2, []string{"b"}, ready, queues)

	writes := counting.writes
	first.apply(department, func() *ac.DepartmentStatusApplyConfiguration {
		return ac.DepartmentStatus().WithObservedGeneration(2).WithNodePools(ac.PoolUsage().WithName("b")).
			WithConditions(apply.Conditions(all, ready)...)
	})
	if counting.writes != writes {
		t.Errorf("an equal status was sent")
	}

	// The last element of a list is removed, and then another one comes.
	first.apply(department, func() *ac.DepartmentStatusApplyConfiguration {
		return ac.DepartmentStatus().WithObservedGeneration(2)
	})
	expect("the first leaves out the last node pool and its conditions", 0, 2, nil, queues)
	second.apply(department, ac.DepartmentStatus)
	expect("the second leaves out the last condition", 0, 2, nil)
	second.apply(department, func() *ac.DepartmentStatusApplyConfiguration {
		return ac.DepartmentStatus().WithNodePools(ac.PoolUsage().WithName("c")).WithConditions(apply.Conditions(all, queues)...)
	})
	expect("the second has a node pool and a condition again", 0, 2, []string{"c"}, queues)

	// A deleted object is no error.
	gone := department.DeepCopy()
	gone.Name = "status-managers-gone"
	first.apply(gone, func() *ac.DepartmentStatusApplyConfiguration { return ac.DepartmentStatus().WithObservedGeneration(9) })
}
