// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/test/clustertest"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/process"
)

// killComponent kills a component's process and returns when it has restarted.
func (w *testEnv) killComponent(component string) {
	w.t.Helper()
	status := func() process.Status {
		for _, s := range simulation.List() {
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

func TestKubeletRestartAfterKill(t *testing.T) {
	w := newTestEnv(t)
	for i := range 3 {
		w.createAndWaitRunning(newTestPod(fmt.Sprintf("stays-%d", i)).onNode(wholeGPUNode).requestingGPUs(2))
	}
	w.createAndWaitRunning(newTestPod("goes").onNode(wholeGPUNode).requestingGPUs(1))
	w.createAndWaitRunning(newTestPod("slice").onNode(partitionedNode).requesting("nvidia.com/mig-2g.10gb", "2"))
	// A free device before the others, so that a new assignment would differ.
	w.delete("stays-0", *metav1.NewDeleteOptions(0))
	clustertest.Eventually(t, func() error {
		if held := w.deviceHolders(wholeGPUNode); len(held) != 3 {
			return fmt.Errorf("the pods hold %v", held)
		}
		return nil
	})
	before, beforeCut := w.deviceHolders(wholeGPUNode), w.deviceHolders(partitionedNode)

	w.delete("goes", *metav1.NewDeleteOptions(0))
	delete(before, "goes/main")
	w.killComponent("fakekubelet")
	if diff := cmp.Diff(before, w.deviceHolders(wholeGPUNode)); diff != "" {
		t.Errorf("whole GPUs (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(beforeCut, w.deviceHolders(partitionedNode)); diff != "" {
		t.Errorf("slices (-before +after):\n%s", diff)
	}
	// The next pod gets the device that became free meanwhile.
	w.createAndWaitRunning(newTestPod("next").onNode(wholeGPUNode).requestingGPUs(4))
	held := map[string]string{}
	for pod, ids := range w.deviceHolders(wholeGPUNode) {
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

// Pods keep running while kwok is down, and kwok continues afterwards.
func TestKwokRestartAfterKill(t *testing.T) {
	w := newTestEnv(t)
	w.createAndWaitRunning(newTestPod("ends").onNode(wholeGPUNode).requestingGPUs(1).withAnnotation("sim.sluice.dev/run-for", "3s"))
	w.killComponent("kwok")
	w.waitForPhase("ends", corev1.PodSucceeded)
	w.createAndWaitRunning(newTestPod("after").onNode(wholeGPUNode).requestingGPUs(1))
}

// runKubelet runs the kubelet of another node in this process, and returns a function that
// stops it.
func (w *testEnv) runKubelet(dir string, node fakekubelet.Node) (stop func()) {
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
			w.t.Errorf("Run returned %v after the end of its context, want nil", err)
		}
		if _, err := os.Stat(socketOf(dir, node.Name)); !errors.Is(err, os.ErrNotExist) {
			w.t.Errorf("the socket remains: %v", err)
		}
	}
}

// newNodeDir returns a folder for a Node, and removes the Node at the end of the test.
func (w *testEnv) newNodeDir(name string) (dir string) {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "kubelet-") // the path of t.TempDir is too long for a socket
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

func (w *testEnv) gpuQuota(node string) int64 {
	w.t.Helper()
	got, err := w.client.CoreV1().Nodes().Get(w.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	quantity := got.Status.Capacity["sluice.dev/gpu-milli"]
	return quantity.Value()
}

func TestBootResetsForeignResources(t *testing.T) {
	w := newTestEnv(t)
	const name = "dgx-boots"
	dir := w.newNodeDir(name)
	node := fakekubelet.DGXA100(name, "dgx")
	w.runKubelet(dir, node)()
	write := func() {
		t.Helper()
		status := []byte(`{"status":{"capacity":{"sluice.dev/gpu-milli":"8k"},"allocatable":{"sluice.dev/gpu-milli":"8k"}}}`)
		if _, err := w.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{},
			"status"); err != nil {
			t.Fatal(err)
		}
	}
	write()
	w.runKubelet(dir, node)()
	if got := w.gpuQuota(name); got != 8000 {
		t.Errorf("after a restart sluice.dev/gpu-milli is %d, want 8000", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, "nodes")); err != nil {
		t.Fatal(err)
	}
	w.runKubelet(dir, node)()
	if got := w.gpuQuota(name); got != 0 {
		t.Errorf("after a boot sluice.dev/gpu-milli is %d, want 0", got)
	}
}

// Without a checkpoint the assignment is unknown. Running pods get devices again, the
// longest running first, and no device is assigned twice.
func TestMissingCheckpoint(t *testing.T) {
	w := newTestEnv(t)
	const name = "dgx-lost"
	dir := w.newNodeDir(name)
	node := fakekubelet.DGXA100(name, "dgx")
	stop := w.runKubelet(dir, node)
	w.createAndWaitRunning(newTestPod("a").boundTo(name).requestingGPUs(4))
	w.createAndWaitRunning(newTestPod("b").boundTo(name).requestingGPUs(4))
	stop()
	if err := os.RemoveAll(filepath.Join(dir, "nodes")); err != nil {
		t.Fatal(err)
	}
	w.create(newTestPod("c").boundTo(name).requestingGPUs(1))
	defer w.runKubelet(dir, node)()
	if got := w.waitForPhase("c", corev1.PodFailed); got.Status.Reason != "UnexpectedAdmissionError" {
		t.Errorf("a pod on a full node: %s: %s", got.Status.Reason, got.Status.Message)
	}
	for _, pod := range []string{"a", "b"} {
		w.waitForPhase(pod, corev1.PodRunning)
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
		t.Errorf("the running pods hold %d different devices, want 8", len(held))
	}
}

// A force-deleted pod may be created again under its name before the kubelet has observed
// the deletion.
func TestPodRecreatedWithSameName(t *testing.T) {
	w := newTestEnv(t)
	for range 5 {
		created := w.createAndWaitRunning(newTestPod("again").onNode(wholeGPUNode).requestingGPUs(3).withGracePeriod(30))
		w.delete("again", *metav1.NewDeleteOptions(0))
		if held := w.deviceHolders(wholeGPUNode)["again/main"]; len(held) != 0 && len(held) != 3 {
			t.Fatalf("pod %s holds %v, want three devices or none", created.UID, held)
		}
	}
	start := time.Now()
	w.createAndWaitRunning(newTestPod("again").onNode(wholeGPUNode).requestingGPUs(8))
	t.Logf("eight devices after %s", time.Since(start))
}

// A process that is killed between any two writes leaves a state that the next process
// preserves.
func TestKubeletKilledAtAnyWrite(t *testing.T) {
	w := newTestEnv(t)
	for _, arrives := range []bool{true, false} {
		for writes := range int32(4) {
			t.Run(fmt.Sprintf("after %d, the next one arrives: %t", writes, arrives), func(t *testing.T) {
				w := &testEnv{t: t, cluster: w.cluster, client: w.client, namespace: w.namespace}
				name := fmt.Sprintf("dgx-dies-%d-%t", writes, arrives)
				dir := w.newNodeDir(name)
				node := fakekubelet.DGXA100(name, "dgx")
				t.Cleanup(w.deleteAllPods)
				for _, pod := range []string{"a", "b", "c"} {
					w.create(newTestPod(pod).boundTo(name).requestingGPUs(2))
				}
				dying := &crashingTransport{requestArrives: arrives, dead: make(chan struct{})}
				dying.requestsLeft.Store(writes)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				api := w.cluster.Config()
				api.Wrap(dying.wrapTransport)
				go func() {
					done <- fakekubelet.Run(ctx, fakekubelet.Config{API: api, Dir: dir, Nodes: []fakekubelet.Node{node}})
				}()
				if writes < 3 { // otherwise all writes are done
					<-dying.dead
				} else {
					w.waitForPhase("c", corev1.PodRunning)
				}
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				promised := readCheckpointHolders(t, dir, name)

				defer w.runKubelet(dir, node)()
				held := map[string]string{}
				for _, pod := range []string{"a", "b", "c"} {
					created := w.waitForPhase(pod, corev1.PodRunning)
					now := readCheckpointHolders(t, dir, name)[string(created.UID)]
					if before, ok := promised[string(created.UID)]; ok && !slices.Equal(before, now) {
						t.Errorf("pod %s held %v and now holds %v", pod, before, now)
					}
					for _, id := range now {
						held[id] = pod
					}
				}
				if len(held) != 6 {
					t.Errorf("three pods of two devices hold %v", held)
				}
			})
		}
	}
}

// readCheckpointHolders returns the devices in a node's checkpoint by pod UID.
func readCheckpointHolders(t *testing.T, dir, node string) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "nodes", node, "kubelet_internal_checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	pods, err := devices.Decode(node, raw)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string][]string{}
	for _, pod := range pods {
		held[pod.UID] = pod.Devices()
	}
	return held
}

// crashingTransport simulates a crash at a write of a pod's status: after a number of
// writes no request gets a response, and the next write may still arrive.
type crashingTransport struct {
	http.RoundTripper
	requestsLeft   atomic.Int32
	requestArrives bool
	dead           chan struct{}
	crash          sync.Once
}

func (m *crashingTransport) wrapTransport(next http.RoundTripper) http.RoundTripper {
	m.RoundTripper = next
	return m
}

func (m *crashingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	status := request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/pods/")
	if !status || m.requestsLeft.Add(-1) >= 0 {
		return m.RoundTripper.RoundTrip(request)
	}
	defer m.crash.Do(func() { close(m.dead) })
	if m.requestArrives && m.requestsLeft.Load() == -1 {
		if response, err := m.RoundTripper.RoundTrip(request); err == nil {
			response.Body.Close()
		}
	}
	return nil, errors.New("simulated crash")
}
