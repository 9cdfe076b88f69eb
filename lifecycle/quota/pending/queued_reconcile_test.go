// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/test/scale/stubapi"
)

// fakeKueueReader are Kueue's Workloads, as a cache has them.
type fakeKueueReader struct {
	client.Reader

	items []kueueWorkload
}

func (w *fakeKueueReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*kueueWorkloadList).Items = w.items
	return nil
}

// newQueueTestEnv returns an environment without rejections and with these queued workloads.
func newQueueTestEnv(t *testing.T, items ...kueueWorkload) (*testEnv, *fakeKueueReader) {
	t.Helper()
	g := newTestEnv(t, 0)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: "web-1"}}
	if err := g.client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	fake := &fakeKueueReader{items: items}
	var reader client.Reader = fake
	g.kueue.reader.Store(&reader)
	return g, fake
}

// recordedEvents returns the events since its last call.
func (g *testEnv) recordedEvents() (texts []string) {
	for len(g.recorder.Events) > 0 {
		texts = append(texts, <-g.recorder.Events)
	}
	return texts
}

// withCurrentTimes is a Workload that began to wait just now.
func withCurrentTimes(w kueueWorkload) kueueWorkload {
	w.Status.Conditions[0].LastTransitionTime = metav1.NewTime(policytime.MachineNow())
	return w
}

const noQuotaEvent = "Queued 3 pods wait in queue default of project thesis (department students), 3 GPUs in total: " +
	"no free quota in node pool whole (3 GPUs more needed); it starts automatically when Kueue admits it"

func TestQueuedReasonsAnnouncedOnce(t *testing.T) {
	train := withCurrentTimes(newKueueWorkload("job-train", 3, 0, noQuotaMessage, ownerReference("batch/v1", "Job", "train")))
	g, reader := newQueueTestEnv(t, train)
	if wrote, _ := g.reconcileOnce(t); len(wrote) != 1 {
		t.Errorf("wrote %v", wrote)
	}
	if diff := cmp.Diff([]string{"Warning " + noQuotaEvent}, g.recordedEvents()); diff != "" {
		t.Error(diff)
	}
	for _, message := range []string{
		strings.Replace(noQuotaMessage, "3k", "1k", 1), "Workload no longer fits after processing another workload", noQuotaMessage, "",
	} {
		train.Status.Conditions[0].Message = message
		reader.items[0] = train
		if wrote, _ := g.reconcileOnce(t); len(wrote) > 0 || len(g.recorder.Events) > 0 {
			t.Errorf("%q is no other reason, and it wrote %v and recorded %v", message, wrote, g.recordedEvents())
		}
	}
	train.Status.Conditions[0].Message = "ClusterQueue thesis is stopped"
	reader.items[0] = train
	g.reconcileOnce(t)
	if recorded := g.recordedEvents(); len(recorded) != 1 || !strings.Contains(recorded[0], "Kueue's ClusterQueue thesis is stopped; contact an administrator") {
		t.Errorf("recorded %v", recorded)
	}
	reader.items = nil
	g.reconcileOnce(t)
	if len(g.recorder.Events) > 0 || len(g.announced) > 0 {
		t.Errorf("no workload is pending: recorded %v, caches %v", g.recordedEvents(), g.announced)
	}
}

func TestStatusIncludesQueue(t *testing.T) {
	g, _ := newQueueTestEnv(t, withCurrentTimes(newKueueWorkload("job-train", 3, 0, noQuotaMessage, ownerReference("batch/v1", "Job", "train"))))
	g.pods = fakePods{newGPUPod("dgx", 500, withKueueHold)}
	g.reconcileOnce(t)
	var p v1alpha1.Project
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "thesis"}, &p); err != nil {
		t.Fatal(err)
	}
	waits := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPending)
	if waits == nil || waits.Reason != v1alpha1.ReasonQueued || !strings.Contains(waits.Message, "Job train (3 pods, 3 GPUs, since ") || !strings.Contains(waits.Message, ": no free quota in node pool whole)") {
		t.Errorf("condition = %+v", waits)
	}
	if got := p.Status.GPU.Pending.String() + " " + p.Status.NodePools[0].Pending.String(); got != "3500m 500m" {
		t.Errorf("pending = %s", got)
	}
}

// A Deployment's pods are many Workloads, and one thing to people.
func TestDeploymentAnnouncedOnce(t *testing.T) {
	var items []kueueWorkload
	var pods fakePods
	for i := range 30 {
		name := fmt.Sprintf("web-5d-%d", i)
		items = append(items, withCurrentTimes(newKueueWorkload("pod-"+name, 1, 0, noQuotaMessage, ownerReference("v1", "Pod", name))))
		pods = append(pods, newGPUPod("whole", 1000, withKueueHold, withController(name, "ReplicaSet", "web-5d")))
	}
	g, _ := newQueueTestEnv(t, items...)
	g.pods = pods
	if err := g.client.Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "thesis", Name: "web-5d", UID: "web-5d", OwnerReferences: []metav1.OwnerReference{ownerReference("apps/v1", "Deployment", "web")},
	}}); err != nil {
		t.Fatal(err)
	}
	g.reconcileOnce(t)
	g.reconcileOnce(t)
	if recorded := g.recordedEvents(); len(recorded) != 1 || !strings.Contains(recorded[0], "30 pods wait in queue default") || g.announced["thesis"]["web-5d"].root.Name != "web" {
		t.Errorf("recorded events %v, announced %+v", recorded, g.announced)
	}
}

func TestNotAnnouncedAgainAfterLeaderChange(t *testing.T) {
	g, reader := newQueueTestEnv(t, newKueueWorkload("job-train", 3, 0, noQuotaMessage, ownerReference("batch/v1", "Job", "train")))
	g.reconcileOnce(t)
	if recorded := g.recordedEvents(); len(recorded) > 0 {
		t.Errorf("it has been pending for long, and %v was recorded", recorded)
	}
	reader.items[0].Status.Conditions[0].Message = "LocalQueue default is stopped"
	g.reconcileOnce(t)
	if recorded := g.recordedEvents(); len(recorded) != 1 {
		t.Errorf("the reason is another: %v", recorded)
	}
}

func TestEvictionAnnounced(t *testing.T) {
	evicted := func(at time.Time) kueueWorkload {
		w := newKueueWorkload("job-train", 3, 0, "", ownerReference("batch/v1", "Job", "train"))
		w.Status.Conditions = append(w.Status.Conditions,
			metav1.Condition{Type: kueueEvicted, Status: metav1.ConditionTrue, Reason: kueuePreempted, LastTransitionTime: metav1.NewTime(at)},
			metav1.Condition{Type: kueuePreempted, Status: metav1.ConditionTrue, Reason: "InCohortReclamation", Message: "preemptor path: /sluice/lab/team-d; preemptee path: /sluice/lab/thesis"})
		return w
	}
	at := policytime.MachineNow()
	g, reader := newQueueTestEnv(t, evicted(at))
	g.reconcileOnce(t)
	g.reconcileOnce(t)
	const want = "Warning EvictedByKueue it was stopped for project team-d, which is guaranteed these GPUs; it ran over quota; " +
		"it is queued again in project thesis and starts automatically when quota is free"
	if diff := cmp.Diff([]string{want}, g.recordedEvents()); diff != "" {
		t.Error(diff)
	}
	reader.items[0] = evicted(at.Add(time.Minute))
	g.reconcileOnce(t)
	if recorded := g.recordedEvents(); len(recorded) != 1 {
		t.Errorf("repeated the eviction: %v", recorded)
	}
	old, _ := newQueueTestEnv(t, evicted(at.Add(-time.Hour)))
	old.reconcileOnce(t)
	if recorded := old.recordedEvents(); len(recorded) > 0 {
		t.Errorf("announced an eviction from before it became the leader: %v", recorded)
	}
}

// TestKueueWorkloadsWatched runs the whole of it against a server: what comes into the
// queue of Kueue is in the status of its project, and goes from there with it.
func TestKueueWorkloadsWatched(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server, err := stubapi.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put := func(tree map[string]any) {
		t.Helper()
		if err := server.Put(tree); err != nil {
			t.Fatal(err)
		}
	}
	put(map[string]any{
		"apiVersion": "sluice.dev/v1alpha1", "kind": "Project", "metadata": map[string]any{"name": "thesis"},
		"spec":   map[string]any{"department": "students", "nodePools": []any{map[string]any{"name": "whole"}}},
		"status": map[string]any{"namespace": map[string]any{"name": "thesis"}, "nodePools": []any{map[string]any{"name": "whole"}}},
	})
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: kinds, Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Minute), Logger: testr.NewWithOptions(t, testr.Options{Verbosity: -1}),
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := inventory.IndexProjects(ctx, mgr.GetFieldIndexer()); err != nil {
		t.Fatal(err)
	}
	pods, err := podcache.New(cfg, podcache.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(pods); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Pods: pods, Clocks: clocksByController{}, Events: events.NewFakeRecorder(100)}
	if err := r.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	await := func(pending, pool, message string) {
		t.Helper()
		var got v1alpha1.ProjectStatus
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
			var p v1alpha1.Project
			if err := mgr.GetAPIReader().Get(ctx, client.ObjectKey{Name: "thesis"}, &p); err != nil {
				return false, err
			}
			got = p.Status
			waits := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionPending)
			return waits != nil && strings.Contains(waits.Message, message) && got.GPU.Pending.String() == pending && got.NodePools[0].Pending.String() == pool, nil
		})
		if err != nil {
			t.Fatalf("%v: %s pending and %q wanted, the status is %+v", err, pending, message, got)
		}
	}
	put(map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
		"metadata": map[string]any{"namespace": "thesis", "name": "job-train", "ownerReferences": []any{map[string]any{
			"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "train", "controller": true,
		}}},
		"spec": map[string]any{"queueName": "default", "podSets": []any{map[string]any{"name": "main", "count": int64(3), "template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"sluice.dev/node-pool": "whole"}},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "resources": map[string]any{
				"requests": map[string]any{"sluice.dev/gpu-milli": "1k"},
			}}}},
		}}}},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": noQuotaMessage, "lastTransitionTime": "2026-05-01T12:00:00Z",
		}}},
	})
	await("3", "3", "Job train (3 pods, 3 GPUs, since 2026-05-01T12:00:00Z: no free quota in node pool whole)")
	if err := server.Delete(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"}, "thesis", "job-train"); err != nil {
		t.Fatal(err)
	}
	await("0", "0", "no workload waits")
}
