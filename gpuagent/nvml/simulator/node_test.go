// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

func TestModels(t *testing.T) {
	for _, name := range simulator.Models() {
		t.Run(name, func(t *testing.T) {
			n := newInitializedNode(t, simulator.GPU{Model: name})
			gpu := requireResult(n.GPUs())(t)[0]
			if gpu.Name == "" || gpu.PCIDevice&0xffff != 0x10de || gpu.PCIDevice>>16 == 0 || gpu.MemoryMiB < 10000 {
				t.Errorf("GPUs = %+v, which is incomplete", gpu)
			}
			profiles, err := n.Profiles(gpu.UUID)
			if err != nil {
				requireError(t, "Profiles", err, nvml.ErrNotSupported)
				return
			}
			for _, p := range profiles {
				whole := p.MemoryMiB > gpu.MemoryMiB*9/10
				if p.MemoryMiB > gpu.MemoryMiB || p.Multiprocessors < 8*p.Compute ||
					whole != (p.Compute == 7 || p.Compute == 4 && len(profiles) != 7) {
					t.Errorf("profile %+v of a GPU with %d MiB", p, gpu.MemoryMiB)
				}
			}
		})
	}
}

func TestAttach(t *testing.T) {
	n := newInitializedNode(t, migGPU("A100-40GB", first), wholeGPU("V100", second))
	_, mig := createInstance(t, n, first, threeG, 4, 4)
	for _, test := range []struct {
		name   string
		pid    uint32
		device string
		memory int64
		sm     int
		want   nvml.Error
	}{
		{"a MIG device", 7, mig.UUID, 1000, 30, 0},
		{"another process", 8, mig.UUID, 18968, 30, 0},
		{"more than is left", 9, mig.UUID, 1, 30, nvml.ErrInsufficientResources},
		{"one that the driver cannot size", 9, mig.UUID, nvml.UnknownMiB, 0, 0},
		{"a whole GPU", 7, second, 2000, 60, 0},
		{"the same again", 7, second, 32768, 70, 0},
		{"a busy one", 10, second, 0, 70, 0},
		{"more than the GPU has", 7, second, 32769, 60, nvml.ErrInsufficientResources},
		{"a GPU in MIG mode", 7, first, 1, 1, nvml.ErrInvalidArgument},
		{"no device", 7, "MIG-none", 1, 1, nvml.ErrNotFound},
		{"no memory", 7, second, -2, 1, nvml.ErrInvalidArgument},
		{"busier than can be", 7, second, 1, 101, nvml.ErrInvalidArgument},
	} {
		requireError(t, test.name, n.Attach(test.pid, test.device, test.memory, test.sm), test.want)
	}
	byPID := func(a, b nvml.Process) int { return int(a.PID) - int(b.PID) }
	got := requireResult(n.Processes(first))(t)
	slices.SortFunc(got, byPID)
	want := []nvml.Process{{PID: 7, MemoryMiB: 1000}, {PID: 8, MemoryMiB: 18968}, {PID: 9, MemoryMiB: nvml.UnknownMiB}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processes on the instance (-want +got):\n%s", diff)
	}
	got = requireResult(n.Processes(second))(t)
	slices.SortFunc(got, byPID)
	none := nvml.NoInstance
	want = []nvml.Process{{PID: 7, MemoryMiB: 32768, Instance: none, Compute: none}, {PID: 10, Instance: none, Compute: none}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processes on the GPU (-want +got):\n%s", diff)
	}
	if got, want := requireResult(n.Memory(first))(t), (nvml.Memory{TotalMiB: 40960, UsedMiB: 19968}); got != want {
		t.Errorf("Memory = %+v, want %+v", got, want)
	}
	if got := requireResult(n.Utilization(second))(t); got != 100 {
		t.Errorf("Utilization = %d, want 100", got)
	}
	samples := requireResult(n.ProcessUtilization(second, startTime.Add(-time.Second)))(t)
	if len(samples) != 2 || samples[0].SM != 70 || !samples[0].At.Equal(startTime) {
		t.Errorf("ProcessUtilization = %+v, want two of 70 %%, now", samples)
	}
	if samples := requireResult(n.ProcessUtilization(second, startTime))(t); len(samples) != 0 {
		t.Errorf("ProcessUtilization since now = %+v, want none", samples)
	}
	if diff := cmp.Diff([]uint32{7, 8, 9, 10}, n.PIDs()); diff != "" {
		t.Errorf("PIDs (-want +got):\n%s", diff)
	}
	n.Detach(7)
	if diff := cmp.Diff([]uint32{8, 9, 10}, n.PIDs()); diff != "" {
		t.Errorf("PIDs after Detach (-want +got):\n%s", diff)
	}
	n.Lose(first)
	requireError(t, "Attach to an instance of a lost GPU", n.Attach(11, mig.UUID, 1, 1), nvml.ErrGPULost)
}

// TestBoot checks what outlives a boot: on Ampere the mode, and the pending mode.
func TestBoot(t *testing.T) {
	n := newInitializedNode(t, migGPU("A100-40GB", "ampere"), migGPU("H100-80GB", "hopper"), wholeGPU("A30", "pending"),
		wholeGPU("T4", "lost"), wholeGPU("L4", "gone"))
	_, before := createInstance(t, n, "ampere", threeG, 0, 4)
	createInstance(t, n, "hopper", threeG, 0, 4)
	n.SetMIGMode("pending", nvml.Enabled)
	n.Lose("lost")
	n.Vanish("gone")
	if err := n.Attach(7, before.UUID, 1, 1); err != nil {
		t.Fatal(err)
	}
	n.Boot()
	requireError(t, "a call before Init", n.Shutdown(), nvml.ErrUninitialized)
	if err := n.Init(); err != nil {
		t.Fatal(err)
	}
	for gpu, want := range map[string]nvml.Mode{"ampere": nvml.Enabled, "hopper": nvml.Disabled, "pending": nvml.Enabled} {
		if current, pending := readModes(t, n, gpu); current != want || pending != want {
			t.Errorf("%s: MIGMode = %v, %v, want %v", gpu, current, pending, want)
		}
	}
	if got := requireResult(n.Instances("ampere"))(t); len(got) != 0 {
		t.Errorf("%d instances outlived the boot", len(got))
	}
	if got := requireResult(n.GPUs())(t); len(got) != 5 || slices.ContainsFunc(got, func(g nvml.GPU) bool { return g.Err != nil }) {
		t.Errorf("GPUs = %v, want all five and well", got)
	}
	if got := n.PIDs(); len(got) != 0 {
		t.Errorf("processes %v outlived the boot", got)
	}
	it, after := createInstance(t, n, "ampere", threeG, 0, 4)
	if it.ID != 0 {
		t.Errorf("identifier %d, want 0 again", it.ID)
	}
	if after.UUID == before.UUID {
		t.Errorf("the device is %s again", after.UUID)
	}
}

func TestIdentifiers(t *testing.T) {
	for _, same := range []bool{false, true} {
		n := newNode(t, simulator.Config{GPUs: []simulator.GPU{migGPU("A30", first)}, ReuseUUIDs: same})
		i0, c0 := createInstance(t, n, first, 14, 0, 1)
		i1, _ := createInstance(t, n, first, 14, 3, 1)
		if i0.ID != 0 || i1.ID != 1 {
			t.Errorf("identifiers %d, %d, want 0, 1", i0.ID, i1.ID)
		}
		n.DestroyComputeInstance(first, i0.ID, c0.ID)
		n.DestroyInstance(first, i0.ID)
		again, c := createInstance(t, n, first, 14, 1, 1)
		if again.ID != 0 {
			t.Errorf("identifier %d, want 0, which is free", again.ID)
		}
		if (c.UUID == c0.UUID) != same {
			t.Errorf("the device is called %s after %s; with SameUUIDs %v", c.UUID, c0.UUID, same)
		}
	}
}

func TestLostAndVanished(t *testing.T) {
	n := newInitializedNode(t, wholeGPU("T4", "one"), wholeGPU("T4", "two"), wholeGPU("T4", "three"))
	n.Lose("one")
	n.Vanish("two")
	got := requireResult(n.GPUs())(t)
	if len(got) != 2 || got[0].UUID != "one" || got[0].Name != "" || got[1].UUID != "three" || got[1].Index != 2 {
		t.Fatalf("GPUs = %+v, want one without a name, and three at 2", got)
	}
	requireError(t, "error of a lost GPU", got[0].Err, nvml.ErrGPULost)
	requireError(t, "Lose of none", n.Lose("none"), nvml.ErrNotFound)
}

func TestUnload(t *testing.T) {
	n := newInitializedNode(t, wholeGPU("T4", first))
	other := n.Open()
	_, err := other.GPUs()
	requireError(t, "a program that has not called Init", err, nvml.ErrUninitialized)
	for _, missing := range []nvml.Error{nvml.ErrLibraryNotFound, nvml.ErrDriverNotLoaded} {
		n.Unload(missing)
		requireError(t, "Init", n.Init(), missing)
	}
	n.Load()
	_, err = n.GPUs()
	requireError(t, "GPUs before Init", err, nvml.ErrUninitialized)
	requireError(t, "Init", n.Init(), 0)
	_, err = n.GPUs()
	requireError(t, "GPUs", err, 0)
}

// TestOldDriver checks what drivers before 550 report while MIG mode is off.
func TestOldDriver(t *testing.T) {
	n := newNode(t, simulator.Config{GPUs: []simulator.GPU{wholeGPU("A30", first), migGPU("A30", second)}, DriverVersion: "535.161.08"})
	if got := requireResult(n.Profiles(first))(t); len(got) != 0 {
		t.Errorf("profiles %v, want none", got)
	}
	_, err := n.Placements(first, 14)
	requireError(t, "Placements", err, nvml.ErrNotSupported)
	if got := requireResult(n.Profiles(second))(t); len(got) != 5 {
		t.Errorf("profiles %v in MIG mode, want 5", got)
	}
}

// TestOrder creates the same instances under each order, and checks whether the order of lists
// changes.
func TestOrder(t *testing.T) {
	for _, test := range []struct {
		order                         simulator.Order
		instances, profiles, reindexd bool
	}{
		{simulator.StableOrder, false, false, false},
		{simulator.PromisedOrder, false, true, true},
		{simulator.NoOrder, true, true, true},
	} {
		n := newNode(t, simulator.Config{
			Order: test.order,
			GPUs:  []simulator.GPU{migGPU("A100-40GB", first), wholeGPU("T4", second), wholeGPU("T4", "")},
		})
		for start := range 7 {
			createInstance(t, n, first, oneG, start, 1)
		}
		differs := func(list func() any) bool {
			before := list()
			for range 20 {
				if !cmp.Equal(before, list()) {
					return true
				}
			}
			return false
		}
		if got := differs(func() any { return requireResult(n.Instances(first))(t) }); got != test.instances {
			t.Errorf("order %d: instances have another order: %v", test.order, got)
		}
		if got := differs(func() any { return requireResult(n.Profiles(first))(t) }); got != test.profiles {
			t.Errorf("order %d: profiles have another order: %v", test.order, got)
		}
		if got := differs(func() any { n.Reset(second); return requireResult(n.GPUs())(t) }); got != test.reindexd {
			t.Errorf("order %d: indices change: %v", test.order, got)
		}
	}
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]simulator.Config{
		"simulated node: gpus: required; a node has at least one": {},
		"simulated node: gpus[1].uuid: GPU-first is the UUID of gpus[0]": {GPUs: []simulator.GPU{
			wholeGPU("T4", first),
			wholeGPU("T4", first),
		}},
		"simulated node: gpus[0].mode: a T4 does not support MIG; leave it disabled": {GPUs: []simulator.GPU{migGPU("T4", first)}},
		"simulated node: gpus[0].activation: 9 is invalid; the last is 3":            {GPUs: []simulator.GPU{{Model: "A30", Activation: 9}}},
		`simulated node: gpus[0].model: unknown GPU model "K80"; known are A100-40GB, A100-64GB, A100-80GB, PG506-96GB, A30, H100-64GB, H100-80GB, H100-NVL-94GB, H100-96GB, H20-96GB, GH200-96GB, GH200-144GB, H200-141GB, B200-180GB, GB200-186GB, B300-269GB, GB300-278GB, RTX-PRO-6000, L4, L40S, T4, V100`: {GPUs: []simulator.GPU{wholeGPU("K80", first)}},
	} {
		if _, err := simulator.New(c); err == nil || err.Error() != want {
			t.Errorf("New = %v, want %s", err, want)
		}
	}
	a := newInitializedNode(t, wholeGPU("T4", ""), wholeGPU("T4", ""))
	b := newInitializedNode(t, wholeGPU("T4", ""), wholeGPU("T4", ""))
	if diff := cmp.Diff(requireResult(a.GPUs())(t), requireResult(b.GPUs())(t)); diff != "" {
		t.Errorf("two nodes of one seed differ:\n%s", diff)
	}
}

const (
	first  = "GPU-first"
	second = "GPU-second"
)

// The profiles of GPU models with seven compute slices.
const (
	oneG, oneGMedia, oneGDouble, twoG, threeG, fourG, sevenG nvml.ProfileID = 19, 20, 15, 14, 9, 5, 0
)

var startTime = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

// migGPU returns a GPU in MIG mode.
func migGPU(name, uuid string) simulator.GPU {
	return simulator.GPU{Model: name, UUID: uuid, Mode: nvml.Enabled}
}

// wholeGPU returns a GPU without MIG mode.
func wholeGPU(name, uuid string) simulator.GPU { return simulator.GPU{Model: name, UUID: uuid} }

// newInitializedNode returns a node after Init.
func newInitializedNode(t testing.TB, gpus ...simulator.GPU) *simulator.Node {
	t.Helper()
	return newNode(t, simulator.Config{GPUs: gpus, Seed: "test"})
}

func newNode(t testing.TB, c simulator.Config) *simulator.Node {
	t.Helper()
	if c.Clock == nil {
		c.Clock = simulator.NewSkipClock(startTime)
	}
	n := requireResult(simulator.New(c))(t)
	if err := n.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Check(); err != nil {
			t.Errorf("the node came into a state that it cannot be in: %v", err)
		}
	})
	return n
}

// requireResult returns a call's result and fails on an error.
func requireResult[T any](it T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return it
	}
}

// createInstance creates an instance with its compute instance.
func createInstance(t testing.TB, n nvml.Library, gpu string, profile nvml.ProfileID, start, size int) (nvml.Instance,
	nvml.ComputeInstance,
) {
	t.Helper()
	it := requireResult(n.CreateInstance(gpu, profile, nvml.Placement{Start: start, Size: size}))(t)
	return it, requireResult(n.CreateComputeInstance(gpu, it.ID))(t)
}

// requireError fails unless the error has the code; 0 means no error.
func requireError(t testing.TB, what string, err error, want nvml.Error) {
	t.Helper()
	if want == 0 {
		if err != nil {
			t.Errorf("%s = %v, want success", what, err)
		}
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}
