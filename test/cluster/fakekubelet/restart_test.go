// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/test/cluster/clustertest"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/process"
)

// kill kills a component's process, and returns when it has been started again.
func (w *world) kill(component string) {
	w.t.Helper()
	status := func() process.Status {
		for _, s := range w.cluster.Processes().List() {
			if s.Name == component {
				return s
			}
		}
		w.t.Fatalf("there is no component %s", component)
		return process.Status{}
	}
	before := status()
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	clustertest.Eventually(w.t, func() error {
		if now := status(); now.Restarts <= before.Restarts || now.State != process.Running {
			return fmt.Errorf("%s is %s, after %d restarts", component, now.State, now.Restarts)
		}
		return nil
	})
}

func TestKilledAndStartedAgain(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.runs(newPod(fmt.Sprintf("stays-%d", i)).on(whole).gpus(2))
	}
	w.runs(newPod("goes").on(whole).gpus(1))
	w.runs(newPod("slice").on(cut).asks("nvidia.com/mig-2g.10gb", "2"))
	// A hole before the others, so that a new assignment would differ.
	w.delete("stays-0", *metav1.NewDeleteOptions(0))
	clustertest.Eventually(t, func() error {
		if held := w.holdings(whole); len(held) != 3 {
			return fmt.Errorf("the pods hold %v", held)
		}
		return nil
	})
	before, beforeCut := w.holdings(whole), w.holdings(cut)

	w.delete("goes", *metav1.NewDeleteOptions(0))
	delete(before, "goes/main")
	w.kill("fakekubelet")
	if diff := cmp.Diff(before, w.holdings(whole)); diff != "" {
		t.Errorf("whole GPUs (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(beforeCut, w.holdings(cut)); diff != "" {
		t.Errorf("slices (-before +after):\n%s", diff)
	}
	// What was freed meanwhile is given to the next, and nothing else is.
	w.runs(newPod("next").on(whole).gpus(4))
	held := map[string]string{}
	for pod, ids := range w.holdings(whole) {
		for _, id := range ids {
			if other, twice := held[id]; twice {
				t.Errorf("%s is held by %s and by %s", id, pod, other)
			}
			held[id] = pod
		}
	}
	if len(held) != 8 {
		t.Errorf("%d devices are held, want 8: %v", len(held), held)
	}
}

// Pods keep running while kwok is away, and are played on when it is back.
func TestKwokKilledAndStartedAgain(t *testing.T) {
	w := newWorld(t)
	w.runs(newPod("ends").on(whole).gpus(1).annotated("sim.sluice.dev/run-for", "3s"))
	w.kill("kwok")
	w.reaches("ends", corev1.PodSucceeded)
	w.runs(newPod("after").on(whole).gpus(1))
}

// runOne plays a node of its own in this process, and returns a function that
// stops it.
func (w *world) runOne(dir string, node fakekubelet.Node) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- fakekubelet.Run(ctx, fakekubelet.Config{API: w.cluster.Config(), Dir: dir, Nodes: []fakekubelet.Node{node}})
	}()
	clustertest.Eventually(w.t, func() error {
		select {
		case err := <-done:
			w.t.Fatalf("Run returned early: %v", err)
		default:
		}
		_, err := listPodResources(w.t.Context(), socketOf(dir, node.Name))
		return err
	})
	return func() {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run returned %v when it was told to stop, want nil", err)
		}
		if _, err := os.Stat(socketOf(dir, node.Name)); !errors.Is(err, os.ErrNotExist) {
			w.t.Errorf("the socket is left behind: %v", err)
		}
	}
}

// ownNode removes a Node at the test's end, and returns a folder for it.
func (w *world) ownNode(name string) (dir string) {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "kubelet-") // t.TempDir is too long for a socket
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		os.RemoveAll(dir)
		if err := w.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
	return dir
}

func (w *world) milli(node string) int64 {
	w.t.Helper()
	got, err := w.client.CoreV1().Nodes().Get(w.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	quantity := got.Status.Capacity["sluice.dev/gpu-milli"]
	return quantity.Value()
}

func TestAMachineThatBootsForgetsOthersResources(t *testing.T) {
	w := newWorld(t)
	const name = "dgx-boots"
	dir := w.ownNode(name)
	node := fakekubelet.DGXA100(name, "dgx")
	w.runOne(dir, node)()
	write := func() {
		t.Helper()
		status := []byte(`{"status":{"capacity":{"sluice.dev/gpu-milli":"8k"},"allocatable":{"sluice.dev/gpu-milli":"8k"}}}`)
		if _, err := w.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	write()
	w.runOne(dir, node)()
	if got := w.milli(name); got != 8000 {
		t.Errorf("after a restart sluice.dev/gpu-milli is %d, want 8000", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, "nodes")); err != nil {
		t.Fatal(err)
	}
	w.runOne(dir, node)()
	if got := w.milli(name); got != 0 {
		t.Errorf("after a boot sluice.dev/gpu-milli is %d, want 0", got)
	}
}

// Without a checkpoint nobody knows who held what. Pods that run are given
// devices anew, the longest running first, and nobody is given another's.
func TestALostCheckpoint(t *testing.T) {
	w := newWorld(t)
	const name = "dgx-lost"
	dir := w.ownNode(name)
	node := fakekubelet.DGXA100(name, "dgx")
	stop := w.runOne(dir, node)
	w.runs(newPod("a").bound(name).gpus(4))
	w.runs(newPod("b").bound(name).gpus(4))
	stop()
	if err := os.RemoveAll(filepath.Join(dir, "nodes")); err != nil {
		t.Fatal(err)
	}
	w.create(newPod("c").bound(name).gpus(1))
	defer w.runOne(dir, node)()
	if got := w.reaches("c", corev1.PodFailed); got.Status.Reason != "UnexpectedAdmissionError" {
		t.Errorf("a pod on a full node: %s: %s", got.Status.Reason, got.Status.Message)
	}
	for _, pod := range []string{"a", "b"} {
		w.reaches(pod, corev1.PodRunning)
	}
	listed, err := listPodResources(t.Context(), socketOf(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{}
	for _, p := range listed {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				held[d.DeviceIds[0]] = true
			}
		}
	}
	if len(held) != 8 {
		t.Errorf("the pods that run hold %d different devices, want 8", len(held))
	}
}

// A pod that was deleted by force may come back under its name before anybody
// has seen it go.
func TestTheSameNameAgain(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		made := w.runs(newPod("again").on(whole).gpus(3).grace(30))
		w.delete("again", *metav1.NewDeleteOptions(0))
		if held := w.holdings(whole)["again/main"]; len(held) != 0 && len(held) != 3 {
			t.Fatalf("pod %s holds %v, want three devices or none", made.UID, held)
		}
	}
	start := time.Now()
	w.runs(newPod("again").on(whole).gpus(8))
	t.Logf("eight devices after %s", time.Since(start))
}
