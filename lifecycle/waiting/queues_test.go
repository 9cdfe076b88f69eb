// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// workloadsThere are Kueue's Workloads, as a cache has them.
type workloadsThere struct {
	client.Reader

	items []kueueWorkload
}

func (w *workloadsThere) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*kueueWorkloadList).Items = w.items
	return nil
}

// withQueue is a ground where nothing was refused, and these wait in the queue.
func withQueue(t *testing.T, items ...kueueWorkload) (*ground, *workloadsThere) {
	t.Helper()
	g := newGround(t, 0)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: "web-1"}}
	if err := g.client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	there := &workloadsThere{items: items}
	var reader client.Reader = there
	g.queues.reader.Store(&reader)
	return g, there
}

// heard are the events since it was asked last.
func (g *ground) heard() (texts []string) {
	for len(g.said.Events) > 0 {
		texts = append(texts, <-g.said.Events)
	}
	return texts
}

// now is a Workload that began to wait just now.
func now(w kueueWorkload) kueueWorkload {
	w.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clock.MachineNow())
	return w
}

const noRoomNow = "WaitingInQueue 3 pods wait in queue default of project thesis (department students), 3 GPUs in all: " +
	"no room in node pool whole, where 3 GPUs more would be needed of what the project may have and others do not use; it starts by itself when it is its turn"

func TestEachReasonIsToldOnce(t *testing.T) {
	train := now(waiter("job-train", 3, 0, noRoom, by("batch/v1", "Job", "train")))
	g, there := withQueue(t, train)
	if wrote, _ := g.pass(t); len(wrote) != 1 {
		t.Errorf("wrote %v", wrote)
	}
	if diff := cmp.Diff([]string{"Warning " + noRoomNow}, g.heard()); diff != "" {
		t.Error(diff)
	}
	for _, message := range []string{
		strings.Replace(noRoom, "3k", "1k", 1), "Workload no longer fits after processing another workload", noRoom, "",
	} {
		train.Status.Conditions[0].Message = message
		there.items[0] = train
		if wrote, _ := g.pass(t); len(wrote) > 0 || len(g.said.Events) > 0 {
			t.Errorf("%q is no other reason, and it wrote %v and said %v", message, wrote, g.heard())
		}
	}
	train.Status.Conditions[0].Message = "ClusterQueue thesis is stopped"
	there.items[0] = train
	g.pass(t)
	if said := g.heard(); len(said) != 1 || !strings.Contains(said[0], "Kueue's ClusterQueue thesis is stopped; tell an administrator") {
		t.Errorf("it is told %v", said)
	}
	there.items = nil
	g.pass(t)
	if len(g.said.Events) > 0 || len(g.told) > 0 {
		t.Errorf("nothing waits: said %v, remembers %v", g.heard(), g.told)
	}
}

func TestTheStatusTellsOfTheQueue(t *testing.T) {
	g, _ := withQueue(t, now(waiter("job-train", 3, 0, noRoom, by("batch/v1", "Job", "train"))))
	g.pods = podsThere{gpuPod("dgx", 500, inQueue)}
	g.pass(t)
	var p v1alpha1.Project
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &p); err != nil {
		t.Fatal(err)
	}
	waits := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionWaiting)
	if waits == nil || waits.Reason != v1alpha1.ReasonQueued || !strings.Contains(waits.Message, "Job train (3 pods, 3 GPUs, since ") || !strings.Contains(waits.Message, ": no room in node pool whole)") {
		t.Errorf("condition = %+v", waits)
	}
	if got := p.Status.GPU.Pending.String() + " " + p.Status.NodePools[0].Pending.String(); got != "3500m 500m" {
		t.Errorf("pending = %s", got)
	}
}

// A Deployment's pods are many Workloads, and one thing to people.
func TestADeploymentIsToldOnce(t *testing.T) {
	var items []kueueWorkload
	var pods podsThere
	for i := range 30 {
		name := fmt.Sprintf("web-5d-%d", i)
		items = append(items, now(waiter("pod-"+name, 1, 0, noRoom, by("v1", "Pod", name))))
		pods = append(pods, gpuPod("whole", 1000, inQueue, madeBy(name, "ReplicaSet", "web-5d")))
	}
	g, _ := withQueue(t, items...)
	g.pods = pods
	if err := g.client.Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "thesis", Name: "web-5d", UID: "web-5d", OwnerReferences: []metav1.OwnerReference{by("apps/v1", "Deployment", "web")},
	}}); err != nil {
		t.Fatal(err)
	}
	g.pass(t)
	g.pass(t)
	if said := g.heard(); len(said) != 1 || !strings.Contains(said[0], "30 pods wait in queue default") || g.told["thesis"]["web-5d"].root.Name != "web" {
		t.Errorf("it is told %v, of %+v", said, g.told)
	}
}

func TestWhatAnotherProcessToldIsNotToldAgain(t *testing.T) {
	g, there := withQueue(t, waiter("job-train", 3, 0, noRoom, by("batch/v1", "Job", "train")))
	g.pass(t)
	if said := g.heard(); len(said) > 0 {
		t.Errorf("it waits since long ago, and is told %v", said)
	}
	there.items[0].Status.Conditions[0].Message = "LocalQueue default is stopped"
	g.pass(t)
	if said := g.heard(); len(said) != 1 {
		t.Errorf("the reason is another: %v", said)
	}
}

func TestWhoIsEndedForOthersIsTold(t *testing.T) {
	evicted := func(at time.Time) kueueWorkload {
		w := waiter("job-train", 3, 0, "", by("batch/v1", "Job", "train"))
		w.Status.Conditions = append(w.Status.Conditions,
			metav1.Condition{Type: kueueEvicted, Status: metav1.ConditionTrue, Reason: kueuePreempted, LastTransitionTime: metav1.NewTime(at)},
			metav1.Condition{Type: kueuePreempted, Status: metav1.ConditionTrue, Reason: "InCohortReclamation", Message: "preemptor path: /sluice/lab/team-d; preemptee path: /sluice/lab/thesis"})
		return w
	}
	at := clock.MachineNow()
	g, there := withQueue(t, evicted(at))
	g.pass(t)
	g.pass(t)
	const want = "Warning EndedForOthers it was ended for project team-d, to which the GPUs are guaranteed; it ran on what was idle; " +
		"it waits in the queue of project thesis and starts again by itself when there is room"
	if diff := cmp.Diff([]string{want}, g.heard()); diff != "" {
		t.Error(diff)
	}
	there.items[0] = evicted(at.Add(time.Minute))
	g.pass(t)
	if said := g.heard(); len(said) != 1 {
		t.Errorf("it was ended again: %v", said)
	}
	old, _ := withQueue(t, evicted(at.Add(-time.Hour)))
	old.pass(t)
	if said := old.heard(); len(said) > 0 {
		t.Errorf("it was ended before this process came: %v", said)
	}
}
