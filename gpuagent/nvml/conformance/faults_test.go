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

// libraryFault is a library that violates one guarantee.
type libraryFault struct {
	name string
	// breaks is the case that has to fail.
	breaks string
	make   func(nvml.Library) nvml.Library
}

var libraryFaults = []libraryFault{
	{
		"destroys under processes", "a process blocks the destruction of its instance",
		func(l nvml.Library) nvml.Library { return destroyForcing{l} },
	},
	{"hides a process", "a process is listed on its instance", func(l nvml.Library) nvml.Library { return processHiding{l} }},
	{"returns texts for errors", "a destroyed instance is not found", func(l nvml.Library) nvml.Library { return wrongErrorLibrary{l} }},
	{
		"creates instances at other places", "an instance can be created at every place",
		func(l nvml.Library) nvml.Library { return placementShifting{l} },
	},
	{
		"swaps the results of SetMIGMode", "a mode is in force, or pending until a reset",
		func(l nvml.Library) nvml.Library { return resultSwapping{l} },
	},
	{"repeats UUIDs", "devices have UUIDs of their own", func(l nvml.Library) nvml.Library { return uuidRepeating{l} }},
	{
		"creates too small compute instances", "every profile has a compute instance that fills it",
		func(l nvml.Library) nvml.Library { return partialCompute{l} },
	},
	{
		"lists no instances without an error", "no instances exist while MIG mode is off",
		func(l nvml.Library) nvml.Library { return emptyInstances{l} },
	},
	{
		"lists instances in reverse", "instances are listed by their first slice",
		func(l nvml.Library) nvml.Library { return reversedInstances{l} },
	},
	{"finds any GPU", "an unknown GPU is not found", func(l nvml.Library) nvml.Library { return processInventing{l} }},
}

type destroyForcing struct{ nvml.Library }

func (l destroyForcing) DestroyComputeInstance(gpu string, instance, compute uint32) error {
	if err := l.Library.DestroyComputeInstance(gpu, instance, compute); !errors.Is(err, nvml.ErrInUse) {
		return err
	}
	return nil
}

type processHiding struct{ nvml.Library }

func (l processHiding) Processes(gpu string) ([]nvml.Process, error) {
	all, err := l.Library.Processes(gpu)
	return all[:max(0, len(all)-1)], err
}

type wrongErrorLibrary struct{ nvml.Library }

func (l wrongErrorLibrary) DestroyInstance(gpu string, instance uint32) error {
	if err := l.Library.DestroyInstance(gpu, instance); err != nil {
		return errors.New(err.Error())
	}
	return nil
}

type placementShifting struct{ nvml.Library }

func (l placementShifting) CreateInstance(gpu string, profile nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	if at.Size == 1 {
		at.Start = (at.Start + 1) % 4
	}
	return l.Library.CreateInstance(gpu, profile, at)
}

type resultSwapping struct{ nvml.Library }

func (l resultSwapping) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	err, activation = l.Library.SetMIGMode(gpu, mode)
	return activation, err
}

type uuidRepeating struct{ nvml.Library }

func (l uuidRepeating) CreateComputeInstance(gpu string, instance uint32) (nvml.ComputeInstance, error) {
	it, err := l.Library.CreateComputeInstance(gpu, instance)
	it.UUID = "MIG-0"
	return it, err
}

type partialCompute struct{ nvml.Library }

func (l partialCompute) CreateComputeInstance(gpu string, instance uint32) (nvml.ComputeInstance, error) {
	it, err := l.Library.CreateComputeInstance(gpu, instance)
	it.Slices = 1
	return it, err
}

type emptyInstances struct{ nvml.Library }

func (l emptyInstances) Instances(gpu string) ([]nvml.Instance, error) {
	list, err := l.Library.Instances(gpu)
	if errors.Is(err, nvml.ErrNotSupported) {
		err = nil
	}
	return list, err
}

type reversedInstances struct{ nvml.Library }

func (l reversedInstances) Instances(gpu string) ([]nvml.Instance, error) {
	list, err := l.Library.Instances(gpu)
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, err
}

type processInventing struct{ nvml.Library }

func (l processInventing) Processes(gpu string) ([]nvml.Process, error) {
	list, err := l.Library.Processes(gpu)
	if errors.Is(err, nvml.ErrNotFound) {
		err = nil
	}
	return list, err
}

const faultVariable = "SLUICE_TEST_FAULT"

// TestSuiteDetectsFaults runs the suite on each fault, in a process of its own, since the suite fails there.
func TestSuiteDetectsFaults(t *testing.T) {
	for _, f := range libraryFaults {
		if os.Getenv(faultVariable) == f.name {
			conformance.Run(t, conformance.Target{Name: "faulty", New: func(t *testing.T) conformance.Node {
				n := newNode(t, "A100-40GB", nil)
				return nodeUnderTest(f.make(n), n)
			}})
			return
		}
	}
	test := "-test.run=^" + t.Name() + "$"
	for _, f := range libraryFaults {
		t.Run(f.name, func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0], test) //nolint:gosec // this test itself
			child.Env = append(os.Environ(), faultVariable+"="+f.name)
			out, err := child.CombinedOutput()
			failure := "--- FAIL: TestSuiteDetectsFaults/faulty/" + strings.ReplaceAll(f.breaks, " ", "_")
			if err == nil || !strings.Contains(string(out), failure) {
				t.Errorf("the case %q did not fail:\n%s", f.breaks, out)
			}
		})
	}
}
