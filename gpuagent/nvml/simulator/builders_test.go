// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"errors"
	"testing"
	"time"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

const (
	first  = "GPU-first"
	second = "GPU-second"
)

// The profiles of boards with seven compute slices.
const (
	oneG, oneGMedia, oneGDouble, twoG, threeG, fourG, sevenG nvml.ProfileID = 19, 20, 15, 14, 9, 5, 0
)

var epoch = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

// board is one that is in MIG mode.
func board(name, uuid string) simulator.GPU {
	return simulator.GPU{Board: name, UUID: uuid, Mode: nvml.Enabled}
}

// uncut is one that is not.
func uncut(name, uuid string) simulator.GPU { return simulator.GPU{Board: name, UUID: uuid} }

// node is one on which Init was called.
func node(t testing.TB, gpus ...simulator.GPU) *simulator.Node {
	t.Helper()
	return nodeOf(t, simulator.Config{GPUs: gpus, Seed: "test"})
}

func nodeOf(t testing.TB, c simulator.Config) *simulator.Node {
	t.Helper()
	if c.Clock == nil {
		c.Clock = simulator.Skipping(epoch)
	}
	n := must(simulator.New(c))(t)
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

// must is what a call returned, where it succeeded.
func must[T any](it T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return it
	}
}

// instance makes an instance with its compute instance, and gives both.
func instance(t testing.TB, n nvml.Library, gpu string, profile nvml.ProfileID, start, size int) (nvml.Instance, nvml.ComputeInstance) {
	t.Helper()
	it := must(n.CreateInstance(gpu, profile, nvml.Placement{Start: start, Size: size}))(t)
	return it, must(n.CreateComputeInstance(gpu, it.ID))(t)
}

// is fails the test where an error is not the one that is wanted; 0 wants none.
func is(t testing.TB, what string, err error, want nvml.Error) {
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
