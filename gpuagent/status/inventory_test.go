// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

const testPodUID = "0f3c1a52-7d1e-4a37-9d0a-6b1f6c2d8e90"

// writeProcess writes the procfs files of a process in a pod or outside of pods.
func writeProcess(t *testing.T, proc string, pid int, pod string) {
	t.Helper()
	folder := filepath.Join(proc, strconv.Itoa(pid))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	cgroup := "0::/system.slice/x.service\n"
	if pod != "" {
		cgroup = "0::/kubepods/pod" + pod + "/x\n"
	}
	if err := os.WriteFile(filepath.Join(folder, "cgroup"), []byte(cgroup), 0o600); err != nil {
		t.Fatal(err)
	}
}

// healthyOnlyLibrary is a driver that must not be called for the hung GPU.
type healthyOnlyLibrary struct {
	nvml.Library
	t *testing.T
}

func (c healthyOnlyLibrary) Memory(gpu string) (nvml.Memory, error) {
	if gpu == "GPU-stuck" {
		c.t.Error("it would have waited for the driver for ever")
	}
	return c.Library.Memory(gpu)
}

func TestInventoryObserve(t *testing.T) {
	node, err := simulator.New(simulator.Config{Seed: "inventory", Order: simulator.StableOrder, GPUs: []simulator.GPU{
		{Model: "A100-40GB", UUID: "GPU-00000000-0000-0000-0000-000000000000", Mode: nvml.Enabled},
		{Model: "H100-80GB", UUID: "GPU-00000000-0000-0000-0000-000000000001"},
		{Model: "H100-80GB", UUID: "GPU-00000000-0000-0000-0000-000000000002"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	library := node.Open()
	if err := library.Init(); err != nil {
		t.Fatal(err)
	}
	list, err := library.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	instance, err := library.CreateInstance(list[0].UUID, 9, nvml.Placement{Start: 4, Size: 4}) // 3g.20gb
	if err != nil {
		t.Fatal(err)
	}
	compute, err := library.CreateComputeInstance(list[0].UUID, instance.ID)
	if err != nil {
		t.Fatal(err)
	}
	proc := t.TempDir()
	for _, each := range []struct {
		pid    uint32
		device string
		pod    string
		mib    int64
	}{
		{41, compute.UUID, testPodUID, 1000},
		{42, compute.UUID, testPodUID, 500},
		{43, list[1].UUID, "aaaaaaaa-7d1e-4a37-9d0a-6b1f6c2d8e90", nvml.UnknownMiB},
		{44, list[1].UUID, "", 12},
	} {
		writeProcess(t, proc, int(each.pid), each.pod)
		if err := node.Attach(each.pid, each.device, each.mib, 50); err != nil {
			t.Fatal(err)
		}
	}
	if err := node.Lose(list[2].UUID); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	running := func(gpu string) ([]nvml.Process, map[uint32]int) {
		processes, _ := library.Processes(gpu)
		starts := map[uint32]int{}
		instances, _ := library.Instances(gpu)
		for _, it := range instances {
			starts[it.ID] = it.Placement.Start
		}
		return processes, starts
	}
	owner := func(pid uint32) ([]types.UID, *v1alpha1.OtherProcess, error) { return host.ProcessOwner(proc, pid) }
	s := &Inventory{Library: library, Running: running, ProcessOwner: owner, Now: func() time.Time { return now }}
	sight := &devices.Snapshot{Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: testPodUID, Namespace: "h2", Name: "train-0"}}}}
	on := v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled}
	observed := []v1alpha1.ObservedGPU{
		{
			UUID: v1alpha1.GPUUUID(list[0].UUID), Index: 0, DeviceID: "0x20B010DE", MemoryMiB: 40960, MIG: on,
			Instances: []v1alpha1.ObservedInstance{
				{Profile: "3g.20gb", Start: 4, Size: 4, UUID: compute.UUID, State: v1alpha1.InstanceActive},
			},
		},
		{UUID: v1alpha1.GPUUUID(list[1].UUID), Index: 1, DeviceID: "0x233010DE"},
		{UUID: v1alpha1.GPUUUID(list[2].UUID), Index: 2, Health: v1alpha1.GPULost, Message: "lost"},
		{UUID: "GPU-stuck", Index: 3, Health: v1alpha1.GPUUnhealthy, Message: "the driver does not answer"},
	}
	s.Library = healthyOnlyLibrary{library, t}
	var got Node
	for range 2 { // the second pass uses the cache of the first
		got = s.Observe(observed, sight)
	}
	want := Node{
		ObservedAt: now,
		GPUs: []GPU{
			{Index: 0, UUID: list[0].UUID, MemoryMiB: 40960, Mode: on, Slices: 8, Instances: []Instance{{
				Profile: "3g.20gb", Start: 4, Size: 4, UUID: compute.UUID, State: v1alpha1.InstanceActive, Pod: "h2/train-0",
				MemoryMiB: got.GPUs[0].Instances[0].MemoryMiB, UsedMiB: 1500,
			}}},
			{Index: 1, UUID: list[1].UUID, Slices: 8},
			{Index: 2, UUID: list[2].UUID, Health: v1alpha1.GPULost, Message: "lost"},
			{Index: 3, UUID: "GPU-stuck", Health: v1alpha1.GPUUnhealthy, Message: "the driver does not answer"},
		},
		Processes: []Process{
			{PID: 41, Pod: "h2/train-0", GPU: 0, Device: "3g.20gb@4", MemoryMiB: ptr.To[int64](1000)},
			{PID: 42, Pod: "h2/train-0", GPU: 0, Device: "3g.20gb@4", MemoryMiB: ptr.To[int64](500)},
			{PID: 43, Pod: "aaaaaaaa-7d1e-4a37-9d0a-6b1f6c2d8e90", GPU: 1, Device: "whole"},
			{
				PID: 44, GPU: 1, Device: "whole", MemoryMiB: ptr.To[int64](12),
				Other: &v1alpha1.OtherProcess{PID: 44, Name: "unknown", Kind: v1alpha1.OtherService, Owner: "x.service"},
			},
		},
	}
	for i := range got.GPUs {
		// These come from the driver alone.
		got.GPUs[i].UsedMiB, got.GPUs[i].Utilization = nil, nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.GPUs[0].Instances[0].MemoryMiB < 15000 {
		t.Errorf("memory of an instance: %d", got.GPUs[0].Instances[0].MemoryMiB)
	}
	empty := s.Observe(nil, nil)
	if empty.GPUs == nil || empty.Processes == nil {
		t.Error("want empty lists, not null")
	}
}

func TestSliceCountOfUnknownModel(t *testing.T) {
	on := v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled}
	unknown, _ := mig.ModelByName("none")
	for _, tc := range []struct {
		gpu  GPU
		want int
	}{
		{GPU{}, 0},
		{GPU{Mode: on}, 8},
		{GPU{Mode: on, Instances: []Instance{{Start: 8, Size: 4}}}, 12},
	} {
		if got := sliceCount(&tc.gpu, unknown); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.gpu, got, tc.want)
		}
	}
}
