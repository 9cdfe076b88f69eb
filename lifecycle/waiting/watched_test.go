// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/gpupods"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/test/stubapi"
)

// TestTheQueueIsWatched runs the whole of it against a server: what comes into the
// queue of Kueue is in the status of its project, and goes from there with it.
func TestTheQueueIsWatched(t *testing.T) {
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
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: kinds, Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(5 * time.Second), Logger: testr.NewWithOptions(t, testr.Options{Verbosity: -1}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := inventory.IndexProjects(ctx, mgr.GetFieldIndexer()); err != nil {
		t.Fatal(err)
	}
	pods, err := gpupods.New(cfg, gpupods.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(pods); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Pods: pods, Events: events.NewFakeRecorder(100)}
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
	await := func(pending, pool, says string) {
		t.Helper()
		var got v1alpha1.ProjectStatus
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			var p v1alpha1.Project
			if err := mgr.GetAPIReader().Get(ctx, client.ObjectKey{Name: "thesis"}, &p); err != nil {
				return false, err
			}
			got = p.Status
			waits := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionWaiting)
			return waits != nil && strings.Contains(waits.Message, says) && got.GPU.Pending.String() == pending && got.NodePools[0].Pending.String() == pool, nil
		})
		if err != nil {
			t.Fatalf("%v: %s pending and %q wanted, the status is %+v", err, pending, says, got)
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
			"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": noRoom, "lastTransitionTime": "2026-05-01T12:00:00Z",
		}}},
	})
	await("3", "3", "Job train (3 pods, 3 GPUs, since 2026-05-01T12:00:00Z: no room in node pool whole)")
	if err := server.Delete(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"}, "thesis", "job-train"); err != nil {
		t.Fatal(err)
	}
	await("0", "0", "no workload waits")
}
