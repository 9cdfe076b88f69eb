// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/conformance"
)

// fault is a library that breaks one promise.
type fault struct {
	name string
	// breaks is the promise that has to be found broken.
	breaks string
	make   func(nvml.Library) nvml.Library
}

var faults = []fault{
	{"destroys under processes", "a process keeps its instance from being destroyed", func(l nvml.Library) nvml.Library { return forceful{l} }},
	{"hides a process", "a process is seen on its instance", func(l nvml.Library) nvml.Library { return blind{l} }},
	{"tells texts for errors", "what is destroyed is not found again", func(l nvml.Library) nvml.Library { return wordy{l} }},
	{"makes instances elsewhere", "an instance can be made at every place", func(l nvml.Library) nvml.Library { return shifted{l} }},
	{"swaps what SetMIGMode answers", "a mode is in force, or pending until a reset", func(l nvml.Library) nvml.Library { return swapped{l} }},
	{"names devices alike", "devices have UUIDs of their own", func(l nvml.Library) nvml.Library { return alike{l} }},
	{"makes compute instances that are too small", "every profile has a compute instance that fills it", func(l nvml.Library) nvml.Library { return sparing{l} }},
	{"lists no instances without an error", "there are no instances while MIG mode is off", func(l nvml.Library) nvml.Library { return silent{l} }},
	{"lists instances the other way round", "instances are listed by their first slice", func(l nvml.Library) nvml.Library { return reversed{l} }},
	{"finds any GPU", "a GPU that is not there is not found", func(l nvml.Library) nvml.Library { return obliging{l} }},
}

type forceful struct{ nvml.Library }

func (l forceful) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	if err := l.Library.DestroyComputeInstance(gpu, instance, compute); !errors.Is(err, nvml.ErrInUse) {
		return err
	}
	return nil
}

type blind struct{ nvml.Library }

func (l blind) Processes(gpu string) ([]nvml.Process, error) {
	all, err := l.Library.Processes(gpu)
	return all[:max(0, len(all)-1)], err
}

type wordy struct{ nvml.Library }

func (l wordy) DestroyInstance(gpu string, instance uint32) error {
	if err := l.Library.DestroyInstance(gpu, instance); err != nil {
		return errors.New(err.Error())
	}
	return nil
}

type shifted struct{ nvml.Library }

func (l shifted) CreateInstance(gpu string, profile nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	if at.Size == 1 {
		at.Start = (at.Start + 1) % 4
	}
	return l.Library.CreateInstance(gpu, profile, at)
}

type swapped struct{ nvml.Library }

func (l swapped) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	err, activation = l.Library.SetMIGMode(gpu, mode)
	return activation, err
}

type alike struct{ nvml.Library }

func (l alike) CreateComputeInstance(gpu string, instance uint32) (nvml.ComputeInstance, error) {
	it, err := l.Library.CreateComputeInstance(gpu, instance)
	it.UUID = "MIG-0"
	return it, err
}

type sparing struct{ nvml.Library }

func (l sparing) CreateComputeInstance(gpu string, instance uint32) (nvml.ComputeInstance, error) {
	it, err := l.Library.CreateComputeInstance(gpu, instance)
	it.Slices = 1
	return it, err
}

type silent struct{ nvml.Library }

func (l silent) Instances(gpu string) ([]nvml.Instance, error) {
	list, err := l.Library.Instances(gpu)
	if errors.Is(err, nvml.ErrNotSupported) {
		err = nil
	}
	return list, err
}

type reversed struct{ nvml.Library }

func (l reversed) Instances(gpu string) ([]nvml.Instance, error) {
	list, err := l.Library.Instances(gpu)
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, err
}

type obliging struct{ nvml.Library }

func (l obliging) Processes(gpu string) ([]nvml.Process, error) {
	list, err := l.Library.Processes(gpu)
	if errors.Is(err, nvml.ErrNotFound) {
		err = nil
	}
	return list, err
}

const faulty = "SLUICE_TEST_FAULT"

// TestTeeth has the suite find each fault: in a process of its own, since it fails there.
func TestTeeth(t *testing.T) {
	for _, f := range faults {
		if os.Getenv(faulty) == f.name {
			conformance.Run(t, conformance.Target{Name: "faulty", New: func(t *testing.T) conformance.Node {
				n := node(t, "A100-40GB", nil)
				return under(f.make(n), n)
			}})
			return
		}
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTeeth$") //nolint:gosec // this test itself
			child.Env = append(os.Environ(), faulty+"="+f.name)
			out, err := child.CombinedOutput()
			promise := "--- FAIL: TestTeeth/faulty/" + strings.ReplaceAll(f.breaks, " ", "_")
			if err == nil || !strings.Contains(string(out), promise) {
				t.Errorf("%q was not found broken:\n%s", f.breaks, out)
			}
		})
	}
}
