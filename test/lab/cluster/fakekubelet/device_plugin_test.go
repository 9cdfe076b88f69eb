// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

// newKubelet returns a kubelet that has read the GPUs of a new machine.
func newKubelet(t *testing.T, node Node) *kubelet {
	t.Helper()
	gpus, err := simulator.New(node.Machine.Simulator(node.Name))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{
		node: node, gpus: gpus, driver: gpus, log: slog.New(slog.DiscardHandler), state: devices.New(nil, nil),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	t.Cleanup(k.queue.ShutDown)
	if err := k.discoverDevices(); err != nil {
		t.Fatal(err)
	}
	return k
}

// nextEvent returns the next key of the queue, and waits for it.
func (k *kubelet) nextEvent(t *testing.T) string {
	t.Helper()
	key, _ := k.queue.Get()
	k.queue.Done(key)
	return key
}

func TestSIGHUPRestartsPlugin(t *testing.T) {
	synctest.Test(t, testSIGHUPRestartsPlugin) // the duration of a restart passes only when the test waits
}

func testSIGHUPRestartsPlugin(t *testing.T) {
	const slice = "nvidia.com/mig-1g.5gb"
	k := newKubelet(t, DGXA100MIG("dgx-1", "dgx"))
	gpu := devices.GPUID("dgx-1", 3)
	created, err := k.gpus.CreateInstance(gpu, 19, nvml.Placement{Start: 6, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	k.requestPluginRestart()
	if key := k.nextEvent(t); key != pluginKey {
		t.Fatalf("SIGHUP put %q into the queue", key)
	}
	if err := k.restartPlugin(); err != nil || !k.pluginReadyAt.IsZero() || len(k.reported) != 0 {
		t.Fatalf("an instance without a compute instance is no device: %v, %v", k.reported, err)
	}
	device, err := k.gpus.CreateComputeInstance(gpu, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second signal arrives during the restart
		if err := k.restartPlugin(); err != nil {
			t.Fatal(err)
		}
	}
	if k.pluginReadyAt.IsZero() || len(k.state.Inventory()) != 0 {
		t.Fatalf("the plugin did not restart; the devices are %v", k.state.Inventory())
	}
	for key := ""; key != pluginKey; key = k.nextEvent(t) {
	}
	if err := k.restartPlugin(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]devices.Device{{ID: device.UUID, Resource: slice}}, k.state.Inventory()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// During the restart the node keeps its capacity and assigns no devices.
	s, err := k.state.Admit(devices.Pod{UID: "a"}, podDemands(newTestPod("a", newContainer("main", slice, "1"))))
	if err != nil {
		t.Fatal(err)
	}
	k.setState(s)
	if _, err := k.gpus.CreateInstance(gpu, 19, nvml.Placement{Start: 5, Size: 1}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(k.gpus.DestroyComputeInstance(gpu, created.ID, device.ID), k.gpus.DestroyInstance(gpu, created.ID)); err != nil {
		t.Fatal(err)
	}
	if err := k.restartPlugin(); err != nil {
		t.Fatal(err)
	}
	if got, able := k.capacity().Capacity()[slice], k.state.Capacity()[slice]; got != 1 || able != 0 {
		t.Errorf("the capacity is %d and %d can be given, want 1 and 0", got, able)
	}
	if _, refused := evaluateAdmission(newTestPod("b", newContainer("main", slice, "1")), nil, nil, k.state); refused == nil ||
		refused.Reason != "UnexpectedAdmissionError" {
		t.Errorf("a pod during the restart is rejected with %v", refused)
	}
	if holder, _ := k.state.Pod("a"); !cmp.Equal(holder.Devices(), []string{device.UUID}) {
		t.Errorf("a pod whose device is gone holds %v", holder.Devices())
	}
}
