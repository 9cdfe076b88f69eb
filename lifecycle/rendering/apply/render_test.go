// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

const quotaPolicy = `package quotas

objects contains {
	"apiVersion": "v1",
	"kind": "ResourceQuota",
	"metadata": {"name": "sluice", "annotations": {"of": input.object.spec.department}},
	"spec": {"hard": {
		concat("", ["requests.", pool.quotaResource]): format_int(pool.limit * 1000, 10),
		concat("", ["requests.", pool.guaranteedResource]): format_int(pool.guaranteed * 1000, 10),
	}},
} if some pool in input.nodePools
`

// newEngine are an engine with one policy in force.
func newEngine(t *testing.T, rego string) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range e.Update([]engine.Source{{Name: "test", Rego: rego}}) {
		for _, problem := range report.Problems {
			t.Fatal(problem)
		}
	}
	return e
}

func newSubject() Subject {
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis", ResourceVersion: "7"},
		Spec: v1alpha1.ProjectSpec{
			Department: "students", Namespace: "thesis-ns",
			NodePools: []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{
				Guaranteed: resource.MustParse("500m"), Limit: resource.MustParse("1.5"),
			}}},
		},
		Status: v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive},
	}
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Spec: v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKube}}
	return ProjectSubject(project, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
		input.NewProjectPools(project, func(string) *v1alpha1.NodePool { return pool }))
}

func TestRenderReturnsProjectQuota(t *testing.T) {
	wanted, err := Render(t.Context(), newEngine(t, quotaPolicy), newSubject())
	if err != nil || len(wanted.Failures) > 0 || len(wanted.Objects) != 1 {
		t.Fatal(err, wanted)
	}
	o := wanted.Objects[0]
	want := map[string]any{"hard": map[string]any{"requests.sluice.dev/gpu-milli.dgx": "1500", "requests.sluice.dev/guaranteed-milli.dgx": "500"}}
	if diff := cmp.Diff(want, o.Object["spec"]); diff != "" || o.GetNamespace() != "thesis-ns" || o.GetAnnotations()["of"] != "students" {
		t.Errorf("%v (-want +got)\n%s", o, diff)
	}
}

// What is rendered must not depend on what lifecycle writes itself.
func TestRenderHidesStatusFromPolicies(t *testing.T) {
	const rego = `package peek
objects contains {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "seen", "annotations": {"phase": input.object.status.phase}}}
objects contains {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "of", "annotations": {"kind": input.object.kind}}}
`
	wanted, err := Render(t.Context(), newEngine(t, rego), newSubject())
	if err != nil || len(wanted.Failures) > 0 || len(wanted.Objects) != 1 || wanted.Objects[0].GetAnnotations()["kind"] != "Project" {
		t.Errorf("wanted = %+v, %v", wanted, err)
	}
}

func TestRenderWithoutPolicies(t *testing.T) {
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Render(t.Context(), e, newSubject()); err == nil {
		t.Error("no policies are loaded, and there is no error")
	}
}

// Rules about objects are also evaluated for departments and node pools, with their own input and
// without a project's.
func TestRenderForDepartmentsAndNodePools(t *testing.T) {
	const rego = `package engines
objects contains {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": input.department.name, "annotations": {"subscribed": sprintf("%v", [pool.subscribed])}}} if {
	input.object.kind == "Department"
	some pool in input.nodePools
}
objects contains {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": input.nodePool.name, "annotations": {"gpus": sprintf("%v", [input.nodePool.gpus])}}} if input.object.kind == "NodePool"
objects contains {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": input.project.name}}
`
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Status: v1alpha1.NodePoolStatus{GPUs: 8}}
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "cs"}, Spec: v1alpha1.DepartmentSpec{NodePools: []v1alpha1.PoolQuota{{Name: "dgx"}}}}
	for want, subject := range map[string]Subject{
		"Cohort cs map[subscribed:0.5]":  DepartmentSubject(department, []input.NodePool{{Name: "dgx", Subscribed: 500}}),
		"ResourceFlavor dgx map[gpus:8]": NodePoolSubject(pool, input.NewNodePool(pool, nil, nil)),
	} {
		wanted, err := Render(t.Context(), newEngine(t, rego), subject)
		if err != nil || len(wanted.Failures) > 0 || len(wanted.Objects) != 1 {
			t.Fatal(want, wanted, err)
		}
		object := wanted.Objects[0]
		got := fmt.Sprintf("%s %s %v", object.GetKind(), object.GetName(), object.GetAnnotations())
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// policyChangesStub calls its listeners on demand of the test.
type policyChangesStub struct{ listeners []func([]engine.Report) }

func (r *policyChangesStub) OnReports(listener func([]engine.Report)) {
	r.listeners = append(r.listeners, listener)
}

func (r *policyChangesStub) notify() {
	for _, listener := range r.listeners {
		listener(nil)
	}
}

// A controller has nothing to say of policies that are not loaded yet: it waits.
func TestControllerWaitsForPolicies(t *testing.T) {
	var given policyChangesStub
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	source := PolicyChangeSource(&given, func(context.Context) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "thesis"}}}
	})
	if err := source.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := source.WaitForSync(over); err == nil {
		t.Error("it works without policies")
	}
	given.notify()
	if err := source.WaitForSync(t.Context()); err != nil {
		t.Error(err)
	}
	if queue.Len() != 0 {
		t.Errorf("%d subjects are looked at twice at the start", queue.Len())
	}
	given.notify()
	if queue.Len() != 1 {
		t.Errorf("%d subjects are looked at after a change, want 1", queue.Len())
	}
}
