// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"slices"
	"testing"
	"time"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// methodCalls are one call of each method on a GPU.
var methodCalls = []struct {
	name string
	call func(nvml.Library, string) error
}{
	{"DriverVersion", func(l nvml.Library, _ string) error { _, err := l.DriverVersion(); return err }},
	{"GPUs", func(l nvml.Library, _ string) error { _, err := l.GPUs(); return err }},
	{"Memory", func(l nvml.Library, g string) error { _, err := l.Memory(g); return err }},
	{"Utilization", func(l nvml.Library, g string) error { _, err := l.Utilization(g); return err }},
	{"Processes", func(l nvml.Library, g string) error { _, err := l.Processes(g); return err }},
	{"ProcessUtilization", func(l nvml.Library, g string) error { _, err := l.ProcessUtilization(g, time.Time{}); return err }},
	{"InstanceUtilization", func(l nvml.Library, g string) error { _, err := l.InstanceUtilization(g, 1); return err }},
	{"MIGMode", func(l nvml.Library, g string) error { _, _, err := l.MIGMode(g); return err }},
	{"SetMIGMode", func(l nvml.Library, g string) error { _, err := l.SetMIGMode(g, nvml.Enabled); return err }},
	{"Profiles", func(l nvml.Library, g string) error { _, err := l.Profiles(g); return err }},
	{"Placements", func(l nvml.Library, g string) error { _, err := l.Placements(g, oneG); return err }},
	{"RemainingCapacity", func(l nvml.Library, g string) error { _, err := l.RemainingCapacity(g, oneG); return err }},
	{"Instances", func(l nvml.Library, g string) error { _, err := l.Instances(g); return err }},
	{"ComputeInstances", func(l nvml.Library, g string) error { _, err := l.ComputeInstances(g, 0); return err }},
	{"DestroyComputeInstance", func(l nvml.Library, g string) error { return l.DestroyComputeInstance(g, 0, 0) }},
	{"CreateComputeInstance", func(l nvml.Library, g string) error { _, err := l.CreateComputeInstance(g, 0); return err }},
	{"CreateInstance", func(l nvml.Library, g string) error {
		_, err := l.CreateInstance(g, oneG, nvml.Placement{Start: 6, Size: 1})
		return err
	}},
	{"DestroyInstance", func(l nvml.Library, g string) error { return l.DestroyInstance(g, 1) }},
	{"Reset", func(l nvml.Library, g string) error { return l.Reset(g) }},
	{"Shutdown", func(l nvml.Library, _ string) error { return l.Shutdown() }},
}

// TestEachCallInEachState checks the result of each method in each state of a node.
func TestEachCallInEachState(t *testing.T) {
	all := func(as nvml.Error) map[string]nvml.Error {
		want := map[string]nvml.Error{}
		for _, c := range methodCalls {
			want[c.name] = as
		}
		return want
	}
	but := func(want map[string]nvml.Error, as nvml.Error, methods ...string) map[string]nvml.Error {
		for _, m := range methods {
			want[m] = as
		}
		return want
	}
	ofTheNode := []string{"DriverVersion", "GPUs", "Shutdown"}
	ofInstances := []string{
		"RemainingCapacity", "Instances", "CreateInstance", "DestroyInstance", "InstanceUtilization",
		"ComputeInstances", "CreateComputeInstance", "DestroyComputeInstance",
	}
	ofWhole := []string{"Utilization", "ProcessUtilization"}

	for _, test := range []struct {
		name  string
		model string
		mode  nvml.Mode
		state func(*simulator.Node)
		want  map[string]nvml.Error
	}{
		{
			name: "in MIG mode", model: "H100-80GB", mode: nvml.Enabled,
			want: but(all(0), nvml.ErrNotSupported, ofWhole...),
		},
		{
			name: "MIG mode off", model: "A30", mode: nvml.Disabled,
			want: but(but(all(0), nvml.ErrNotSupported, ofInstances...), nvml.ErrInvalidArgument, "Placements"), // 19 is none of its profiles
		},
		{
			name: "a GPU model without MIG", model: "L40S", mode: nvml.Disabled,
			want: but(but(all(0), nvml.ErrNotSupported, ofInstances...), nvml.ErrNotSupported, "MIGMode", "SetMIGMode", "Profiles", "Placements"),
		},
		{
			name: "no permission", model: "H100-80GB", mode: nvml.Enabled,
			state: func(n *simulator.Node) { n.Deny(true) },
			want: but(but(but(all(0), nvml.ErrNotSupported, ofWhole...), nvml.ErrNoPermission, ofInstances...),
				nvml.ErrNoPermission, "Placements", "SetMIGMode", "Reset"),
		},
		{
			name: "has to be reset", model: "H100-80GB", mode: nvml.Enabled,
			state: func(n *simulator.Node) { n.RequireReset(first) },
			want: but(but(all(0), nvml.ErrNotSupported, ofWhole...), nvml.ErrResetRequired,
				"CreateInstance", "DestroyInstance", "CreateComputeInstance", "DestroyComputeInstance"),
		},
		{
			name: "lost", model: "H100-80GB", mode: nvml.Enabled,
			state: func(n *simulator.Node) { n.Lose(first) },
			want:  but(all(nvml.ErrGPULost), 0, ofTheNode...),
		},
		{
			name: "vanished", model: "H100-80GB", mode: nvml.Enabled,
			state: func(n *simulator.Node) { n.Vanish(first) },
			want:  but(all(nvml.ErrNotFound), 0, ofTheNode...),
		},
		{
			name: "before Init", model: "H100-80GB", mode: nvml.Enabled,
			state: func(n *simulator.Node) { n.Shutdown() },
			want:  all(nvml.ErrUninitialized),
		},
		{
			name: "after a boot", model: "H100-80GB", mode: nvml.Enabled,
			state: func(n *simulator.Node) { n.Boot() },
			want:  all(nvml.ErrUninitialized),
		},
		{
			name: "without a driver", model: "H100-80GB", mode: nvml.Enabled,
			state: func(n *simulator.Node) { n.Unload(nvml.ErrDriverNotLoaded) },
			want:  all(nvml.ErrUninitialized),
		},
		{
			name: "a driver that does not answer", model: "H100-80GB", mode: nvml.Enabled,
			state: func(n *simulator.Node) { n.Fail(simulator.Fault{GPU: first, Err: nvml.ErrTimeout}) },
			want:  but(all(nvml.ErrTimeout), 0, ofTheNode...),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			gpu := simulator.GPU{Model: test.model, UUID: first, Mode: test.mode}
			n := newInitializedNode(t, gpu)
			if test.mode == nvml.Enabled {
				createInstance(t, n, first, oneG, 0, 1)
				requireResult(n.CreateInstance(first, oneG, nvml.Placement{Start: 1, Size: 1}))(t)
			}
			if test.state != nil {
				test.state(n)
			}
			for _, c := range methodCalls {
				requireError(t, c.name, c.call(n, first), test.want[c.name])
			}
		})
	}
}

// TestCreateInstance checks the driver's results beside 3g.40gb at 4 and 1g.10gb+me at 0.
func TestCreateInstance(t *testing.T) {
	for _, test := range []struct {
		name        string
		profile     nvml.ProfileID
		start, size int
		want        nvml.Error
	}{
		{"fits", oneG, 1, 1, 0},
		{"fits", twoG, 2, 2, 0},
		{"fits", oneGDouble, 2, 2, 0},
		{"the same place", threeG, 4, 4, nvml.ErrInsufficientResources},
		{"over one that begins before", twoG, 4, 2, nvml.ErrInsufficientResources},
		{"over one at its end", oneGDouble, 6, 2, nvml.ErrInsufficientResources},
		{"over one that is smaller", twoG, 0, 2, nvml.ErrInsufficientResources},
		{"over all", sevenG, 0, 8, nvml.ErrInsufficientResources},
		{"a second with the media engines", oneGMedia, 1, 1, nvml.ErrInsufficientResources},
		{"a place that is none of the profile", oneG, 7, 1, nvml.ErrInvalidArgument},
		{"a place that is none of the profile", twoG, 1, 2, nvml.ErrInvalidArgument},
		{"a place that is none of the profile", twoG, 6, 2, nvml.ErrInvalidArgument},
		{"a place that is none of the profile", fourG, 4, 4, nvml.ErrInvalidArgument},
		{"another size", oneG, 2, 2, nvml.ErrInvalidArgument},
		{"no size", oneG, 2, 0, nvml.ErrInvalidArgument},
		{"outside", oneG, -1, 1, nvml.ErrInvalidArgument},
		{"a profile of an A30", 21, 0, 1, nvml.ErrInvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newInitializedNode(t, migGPU("A100-80GB", first))
			createInstance(t, n, first, threeG, 4, 4)
			createInstance(t, n, first, oneGMedia, 0, 1)
			before := requireResult(n.Instances(first))(t)
			_, err := n.CreateInstance(first, test.profile, nvml.Placement{Start: test.start, Size: test.size})
			requireError(t, "CreateInstance", err, test.want)
			after := requireResult(n.Instances(first))(t)
			if grown := len(after) - len(before); test.want == 0 && grown != 1 || test.want != 0 && grown != 0 {
				t.Errorf("%d instances more after %v", grown, err)
			}
		})
	}
}

func TestMediaEnginesAreExclusive(t *testing.T) {
	n := newInitializedNode(t, migGPU("A30", first))
	requireResult(n.CreateInstance(first, 21, nvml.Placement{Start: 0, Size: 1}))(t)
	_, err := n.CreateInstance(first, 6, nvml.Placement{Start: 2, Size: 2})
	requireError(t, "2g.12gb+me beside 1g.6gb+me", err, nvml.ErrInsufficientResources)
	if left := requireResult(n.RemainingCapacity(first, 6))(t); left != 0 {
		t.Errorf("room for %d more 2g.12gb+me, want 0", left)
	}
}

// TestDestroyInstance destroys in the only possible order; all others are refused.
func TestDestroyInstance(t *testing.T) {
	n := newInitializedNode(t, migGPU("A100-40GB", first))
	it, compute := createInstance(t, n, first, threeG, 0, 4)
	_, err := n.CreateComputeInstance(first, it.ID)
	requireError(t, "a second compute instance", err, nvml.ErrInsufficientResources)
	if err := n.Attach(7, compute.UUID, 100, 50); err != nil {
		t.Fatal(err)
	}
	requireError(t, "DestroyInstance of one with a compute instance and a process", n.DestroyInstance(first, it.ID), nvml.ErrInUse)
	requireError(t, "DestroyComputeInstance of one with a process", n.DestroyComputeInstance(first, it.ID, compute.ID), nvml.ErrInUse)
	n.Detach(7)
	requireError(t, "DestroyInstance of one with a compute instance", n.DestroyInstance(first, it.ID), nvml.ErrInUse)
	requireError(t, "DestroyComputeInstance of another one", n.DestroyComputeInstance(first, it.ID, compute.ID+1), nvml.ErrNotFound)
	requireError(t, "DestroyComputeInstance", n.DestroyComputeInstance(first, it.ID, compute.ID), 0)
	requireError(t, "DestroyComputeInstance again", n.DestroyComputeInstance(first, it.ID, compute.ID), nvml.ErrNotFound)
	requireError(t, "DestroyInstance", n.DestroyInstance(first, it.ID), 0)
	requireError(t, "DestroyInstance again", n.DestroyInstance(first, it.ID), nvml.ErrNotFound)
	_, err = n.ComputeInstances(first, it.ID)
	requireError(t, "ComputeInstances of none", err, nvml.ErrNotFound)
}

// The names that NVIDIA's device plugin computes from the driver's answers are those of the tables.
func TestNamesOfReportedProfiles(t *testing.T) {
	for _, model := range mig.Models() {
		n, err := simulator.New(simulator.Config{GPUs: []simulator.GPU{{Model: model.Name, Mode: nvml.Enabled}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Init(); err != nil {
			t.Fatal(err)
		}
		gpu := requireResult(n.GPUs())(t)[0]
		for _, p := range requireResult(n.Profiles(gpu.UUID))(t) {
			shape := mig.Shape{Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute}
			at := slices.IndexFunc(model.Profiles, func(q mig.Profile) bool { return q.Shape == shape })
			if got := mig.ProfileName(shape, p.MemoryMiB, gpu.MemoryMiB); got != model.Profiles[at].Name {
				t.Errorf("%s: %d of %d MiB is named %s, want %s", model.Name, p.MemoryMiB, gpu.MemoryMiB, got, model.Profiles[at].Name)
			}
			if p.Multiprocessors < 8*p.Compute {
				t.Errorf("%s: %s has %d multiprocessors", model.Name, model.Profiles[at].Name, p.Multiprocessors)
			}
		}
	}
}
