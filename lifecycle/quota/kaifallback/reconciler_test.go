// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kaifallback

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/policies/kaigroup"
)

// testEnv is a cluster with project thesis in namespace work, which has the pools a
// and b, and a group of one pod.
type testEnv struct {
	*Reconciler
	t        *testing.T
	recorder *events.FakeRecorder
	group    types.NamespacedName
}

func newTestEnv(t *testing.T, namespaceLabels map[string]string, group kaigroup.Group, pods ...corev1.Pod) *testEnv {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
		Spec:       v1alpha1.ProjectSpec{Namespace: "work", NodePools: []v1alpha1.PoolQuota{{Name: "a"}, {Name: "b"}, {Name: "gone"}}},
		Status:     v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: "work"}},
	}
	objects := []client.Object{project, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work", Labels: namespaceLabels}}}
	for _, name := range []string{"a", "b"} {
		objects = append(objects, &v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKAI, NodeSelector: map[string]string{"kai.scheduler/node-pool": name}},
		})
	}
	object := &unstructured.Unstructured{Object: group}
	object.SetGroupVersionKind(kaigroup.Kind)
	object.SetNamespace("work")
	object.SetName("pg-train")
	objects = append(objects, object)
	for i := range pods {
		p := pods[i].DeepCopy()
		p.Namespace, p.Name = "work", "train-"+string(rune('0'+i))
		p.Annotations[kaigroup.AnnotationGroup] = "pg-train"
		p.Labels = map[string]string{v1alpha1.LabelNodePool: "a", "kai.scheduler/queue": "thesis.a", "kai.scheduler/node-pool": "a", "mine": "yes"}
		objects = append(objects, p)
	}
	cluster := fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).
		WithIndex(&v1alpha1.Project{}, inventory.ProjectsByNamespace, func(o client.Object) []string {
			p, _ := o.(*v1alpha1.Project)
			return []string{p.NamespaceName()}
		}).Build()
	recorder := events.NewFakeRecorder(10)
	return &testEnv{
		t: t, recorder: recorder, group: types.NamespacedName{Namespace: "work", Name: "pg-train"},
		Reconciler: &Reconciler{Client: cluster, Live: cluster, Events: recorder, notBefore: map[types.NamespacedName]time.Time{}},
	}
}

// reconcileOnce looks at the group once.
func (w *testEnv) reconcileOnce() reconcile.Result {
	w.t.Helper()
	result, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: w.group})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// currentState is the group's queue, shard, class, preemptibility and backoff.
func (w *testEnv) currentState() [5]any {
	w.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kaigroup.Kind)
	if err := w.Client.Get(w.t.Context(), w.group, object); err != nil {
		w.t.Fatal(err)
	}
	spec, _ := object.Object["spec"].(map[string]any)
	return [5]any{spec["queue"], object.GetLabels()["kai.scheduler/node-pool"], spec["priorityClassName"], spec["preemptibility"], spec["schedulingBackoff"]}
}

func TestGroupMovesToNextPool(t *testing.T) {
	w := newTestEnv(t, nil, withUnschedulable(groupIn("a", v1alpha1.PriorityClassTrain), -1), newPod(v1alpha1.PriorityClassTrain, "a,b", ""), newPod(v1alpha1.PriorityClassTrain, "a,b", ""))
	if result := w.reconcileOnce(); result.RequeueAfter != schedulerSettleDelay {
		t.Errorf("the first pass comes again after %s", result.RequeueAfter)
	}
	if diff := cmp.Diff([5]any{"thesis.a", "a", "sluice-train", "preemptible", int64(1)}, w.currentState()); diff != "" {
		t.Errorf("after the first pass (-want +got)\n%s", diff)
	}
	if w.reconcileOnce(); w.currentState()[0] != "thesis.a" {
		t.Error("it went before what was begun could end")
	}
	w.notBefore[w.group] = time.Time{}.Add(time.Second) // that time is over
	if result := w.reconcileOnce(); result.RequeueAfter != minMoveInterval {
		t.Errorf("the move comes again after %s", result.RequeueAfter)
	}
	if diff := cmp.Diff([5]any{"thesis.b", "b", "sluice-train", "preemptible", int64(-1)}, w.currentState()); diff != "" {
		t.Errorf("after the move (-want +got)\n%s", diff)
	}
	var pods corev1.PodList
	if err := w.Client.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		want := map[string]string{v1alpha1.LabelNodePool: "b", "kai.scheduler/queue": "thesis.b", "kai.scheduler/node-pool": "b", "mine": "yes"}
		if diff := cmp.Diff(want, pods.Items[i].Labels); diff != "" {
			t.Errorf("%s (-want +got)\n%s", pods.Items[i].Name, diff)
		}
	}
	if len(w.recorder.Events) != 1 {
		t.Errorf("%d events", len(w.recorder.Events))
	}
	// The scheduler has not tried pool b yet.
	if result := w.reconcileOnce(); result != (reconcile.Result{}) || w.currentState()[0] != "thesis.b" {
		t.Errorf("it goes on at once: %+v", result)
	}
}

// After a move, the scheduler tries the group in its new pool for the whole minute and not only
// once: room that comes there is used at once. On a real KAI-Scheduler 0.17.0 the group started
// 84 seconds late when it was tried only once.
func TestMovedGroupIsTriedUntilItsNextMove(t *testing.T) {
	w := newTestEnv(t, nil, withUnschedulable(groupIn("b", v1alpha1.PriorityClassTrain), -1), newPod(v1alpha1.PriorityClassTrain, "a,b", ""))
	began := policytime.MachineNow()
	w.notBefore[w.group] = began.Add(minMoveInterval)
	result := w.reconcileOnce()
	passed := policytime.MachineNow().Sub(began)
	if result.RequeueAfter < minMoveInterval-passed || w.currentState()[4] != int64(-1) {
		t.Errorf("within the minute: again after %s, %s later, schedulingBackoff %v", result.RequeueAfter, passed, w.currentState()[4])
	}
	w.notBefore[w.group] = policytime.MachineNow()
	if result := w.reconcileOnce(); result.RequeueAfter != schedulerSettleDelay || w.currentState()[4] != int64(1) || w.currentState()[0] != "thesis.b" {
		t.Errorf("after the minute: again after %s, state %v", result.RequeueAfter, w.currentState())
	}
	w.notBefore[w.group] = policytime.MachineNow()
	w.reconcileOnce()
	if diff := cmp.Diff([5]any{"thesis.a", "a", "sluice-train", "preemptible", int64(-1)}, w.currentState()); diff != "" {
		t.Errorf("after the move (-want +got)\n%s", diff)
	}
}

func TestGroupDemotedToPodPriority(t *testing.T) {
	w := newTestEnv(t, nil, groupIn("a", v1alpha1.PriorityClassInteractive), newPod(v1alpha1.PriorityClassTrain, "a", "dgx-1"))
	w.reconcileOnce()
	if diff := cmp.Diff([5]any{"thesis.a", "a", "sluice-train", "preemptible", nil}, w.currentState()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestGroupsNotMoved(t *testing.T) {
	for name, w := range map[string]*testEnv{
		"of kai-resource-management": newTestEnv(t, map[string]string{"kai/project": "thesis"}, withUnschedulable(groupIn("a", v1alpha1.PriorityClassTrain), -1), newPod(v1alpha1.PriorityClassTrain, "a,b", "")),
		"with a pod that runs":       newTestEnv(t, nil, withUnschedulable(groupIn("a", v1alpha1.PriorityClassTrain), -1), newPod(v1alpha1.PriorityClassTrain, "a,b", "dgx-1")),
		"that wait for nothing":      newTestEnv(t, nil, groupIn("a", v1alpha1.PriorityClassTrain), newPod(v1alpha1.PriorityClassTrain, "a,b", "")),
	} {
		before := w.currentState()
		if result := w.reconcileOnce(); result != (reconcile.Result{}) {
			t.Errorf("%s: %+v", name, result)
		}
		if diff := cmp.Diff(before, w.currentState()); diff != "" {
			t.Errorf("%s\n%s", name, diff)
		}
	}
	gone := newTestEnv(t, nil, groupIn("a", v1alpha1.PriorityClassTrain))
	gone.group.Name = "other"
	gone.reconcileOnce()
}
