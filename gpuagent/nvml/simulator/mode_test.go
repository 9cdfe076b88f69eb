// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"testing"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

func readModes(t testing.TB, n nvml.Library, gpu string) (current, pending nvml.Mode) {
	t.Helper()
	current, pending, err := n.MIGMode(gpu)
	if err != nil {
		t.Fatal(err)
	}
	return current, pending
}

// TestSetMIGMode enables MIG mode on GPU models of each kind, with and without processes.
func TestSetMIGMode(t *testing.T) {
	process := func(n *simulator.Node) error { return n.Attach(7, first, 100, 0) }
	daemon := func(n *simulator.Node) error { return n.Hold(first, true) }
	for _, test := range []struct {
		name        string
		gpu         simulator.GPU
		there       func(*simulator.Node) error
		activation  nvml.Error
		now         nvml.Mode
		reset       nvml.Error
		afterwards  nvml.Mode
		afterDetach nvml.Mode
	}{
		{"Hopper", wholeGPU("H100-80GB", first), nil, 0, nvml.Enabled, 0, nvml.Enabled, nvml.Enabled},
		{
			"Hopper with a process", wholeGPU("H100-80GB", first), process, nvml.ErrInUse, nvml.Disabled, nvml.ErrInUse, nvml.Disabled,
			nvml.Enabled,
		},
		{"Hopper with a daemon", wholeGPU("H100-80GB", first), daemon, nvml.ErrInUse, nvml.Disabled, nvml.ErrInUse, nvml.Disabled, nvml.Enabled},
		{"Ampere", wholeGPU("A100-40GB", first), nil, nvml.ErrResetRequired, nvml.Disabled, 0, nvml.Enabled, nvml.Enabled},
		{
			"Ampere with a process", wholeGPU("A100-40GB", first), process, nvml.ErrInUse, nvml.Disabled, nvml.ErrInUse, nvml.Disabled,
			nvml.Enabled,
		},
		{
			"Ampere whose driver resets",
			simulator.GPU{Model: "A30", UUID: first, Activation: simulator.AtOnce},
			nil, 0, nvml.Enabled, 0,
			nvml.Enabled, nvml.Enabled,
		},
		{
			"Ampere with a silent driver",
			simulator.GPU{Model: "A30", UUID: first, Activation: simulator.AtResetSilently},
			nil, 0,
			nvml.Disabled, 0, nvml.Enabled, nvml.Enabled,
		},
		{
			"Ampere that is reset with others",
			simulator.GPU{Model: "A100-80GB", UUID: first, ResetsWithOthers: true},
			nil,
			nvml.ErrResetRequired, nvml.Disabled, nvml.ErrNotSupported, nvml.Disabled, nvml.Disabled,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newInitializedNode(t, test.gpu)
			if test.there != nil {
				if err := test.there(n); err != nil {
					t.Fatal(err)
				}
			}
			activation, err := n.SetMIGMode(first, nvml.Enabled)
			requireError(t, "SetMIGMode", err, 0)
			requireError(t, "activation", activation, test.activation)
			if current, pending := readModes(t, n, first); current != test.now || pending != nvml.Enabled {
				t.Errorf("MIGMode = %v, %v, want %v, %v", current, pending, test.now, nvml.Enabled)
			}
			requireError(t, "Reset", n.Reset(first), test.reset)
			if current, _ := readModes(t, n, first); current != test.afterwards {
				t.Errorf("MIGMode after the reset = %v, want %v", current, test.afterwards)
			}
			n.Detach(7)
			n.Hold(first, false)
			n.Reset(first)
			if current, _ := readModes(t, n, first); current != test.afterDetach {
				t.Errorf("MIGMode after a reset of the idle GPU = %v, want %v", current, test.afterDetach)
			}
		})
	}
}

// TestDisableRemovesInstances disables MIG mode with instances.
func TestDisableRemovesInstances(t *testing.T) {
	n := newInitializedNode(t, migGPU("H100-80GB", first), migGPU("A100-80GB", second))
	_, busy := createInstance(t, n, first, threeG, 0, 4)
	createInstance(t, n, first, threeG, 4, 4)
	createInstance(t, n, second, fourG, 0, 4)
	if err := n.Attach(7, busy.UUID, 1, 1); err != nil {
		t.Fatal(err)
	}
	activation, _ := n.SetMIGMode(first, nvml.Disabled)
	requireError(t, "activation with a process on an instance", activation, nvml.ErrInUse)
	requireError(t, "Reset with a process on an instance", n.Reset(first), nvml.ErrInUse)
	if got := requireResult(n.Instances(first))(t); len(got) != 2 {
		t.Errorf("%d instances, want the former 2", len(got))
	}
	n.Detach(7)
	activation, _ = n.SetMIGMode(first, nvml.Disabled)
	requireError(t, "activation", activation, 0)
	_, err := n.Instances(first)
	requireError(t, "Instances", err, nvml.ErrNotSupported)
	n.SetMIGMode(first, nvml.Enabled)
	if got := requireResult(n.Instances(first))(t); len(got) != 0 {
		t.Errorf("%d instances outlived the mode", len(got))
	}

	activation, _ = n.SetMIGMode(second, nvml.Disabled)
	requireError(t, "activation on Ampere", activation, nvml.ErrResetRequired)
	if got := requireResult(n.Instances(second))(t); len(got) != 1 {
		t.Errorf("%d instances while the mode is pending, want 1", len(got))
	}
	activation, _ = n.SetMIGMode(second, nvml.Enabled)
	requireError(t, "activation of the mode that it has", activation, 0)
	if _, pending := readModes(t, n, second); pending != nvml.Enabled {
		t.Error("the mode is still pending after the current one was set")
	}
}

func TestResetRequiredUntilReset(t *testing.T) {
	n := newInitializedNode(t, migGPU("A100-40GB", first))
	n.RequireReset(first)
	_, err := n.CreateInstance(first, oneG, nvml.Placement{Start: 0, Size: 1})
	requireError(t, "CreateInstance", err, nvml.ErrResetRequired)
	requireError(t, "Reset", n.Reset(first), 0)
	createInstance(t, n, first, oneG, 0, 1)
}
