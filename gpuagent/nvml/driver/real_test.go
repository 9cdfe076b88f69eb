// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"testing"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/conformance"
)

// TestRealGPU reads from this machine's GPUs, if any. It never changes a mode or a layout, and
// resets nothing.
func TestRealGPU(t *testing.T) {
	l := New(Config{})
	if err := l.Init(); errors.Is(err, nvml.ErrLibraryNotFound) || errors.Is(err, nvml.ErrDriverNotLoaded) {
		t.Skipf("no NVIDIA driver on this machine: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	gpus, err := l.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if len(gpus) == 0 {
		t.Skip("an NVIDIA driver, but no GPU on this machine")
	}
	tally := conformance.Run(t, conformance.Target{
		Name:     gpus[0].Name,
		New:      func(*testing.T) conformance.Node { return conformance.Node{Library: New(Config{})} },
		ReadOnly: true,
	})
	if tally.Failed > 0 || tally.Passed == 0 {
		t.Errorf("%+v", tally)
	}
}
