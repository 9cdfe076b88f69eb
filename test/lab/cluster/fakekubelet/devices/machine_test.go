// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

func TestMachineCapacity(t *testing.T) {
	m := DGXA100()
	var whole []Device
	for i := range m.GPUs {
		whole = append(whole, Device{ID: GPUID("dgx-1", i), Resource: "nvidia.com/gpu"})
	}
	s := New(whole, nil)
	want := corev1.ResourceList{
		"cpu": resource.MustParse("256"), "memory": resource.MustParse("1Ti"), "pods": resource.MustParse("110"),
		"ephemeral-storage": resource.MustParse("1760Gi"), "nvidia.com/gpu": resource.MustParse("8"),
	}
	if diff := cmp.Diff(want, m.Capacity(s)); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	want["memory"] = resource.MustParse("1048476Mi")
	if diff := cmp.Diff(want, m.Allocatable(s)); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
}

// Agents and users store these IDs: they must not change between versions.
func TestGPUIDsAreStable(t *testing.T) {
	if got, want := GPUID("dgx-1", 0), "GPU-fe17984b-2759-5e17-b335-c5d6d69071e7"; got != want {
		t.Errorf("the first GPU of dgx-1 is %s, want %s", got, want)
	}
	known := map[string]bool{}
	for _, node := range []string{"dgx-1", "dgx-2"} {
		for _, gpu := range DGXA100().Simulator(node).GPUs {
			if known[gpu.UUID] {
				t.Errorf("%s is used twice", gpu.UUID)
			}
			known[gpu.UUID] = true
		}
	}
}

func TestPartition(t *testing.T) {
	partly := DGXA100()
	partly.MIG = []MIGLayout{{Devices: []int{1}, Instances: []MIGInstance{{"7g.40gb", 0}}}, {Devices: []int{7}}}
	for name, tc := range map[string]struct {
		machine Machine
		want    map[int]string // the layout of the GPUs in MIG mode
	}{
		"whole":    {DGXA100(), map[int]string{}},
		"in part":  {partly, map[int]string{1: "7g.40gb@0", 7: ""}},
		"empty":    {DGXA100MIG(), map[int]string{0: "", 1: "", 2: "", 3: "", 4: "", 5: "", 6: "", 7: ""}},
		"balanced": {DGXA100Balanced(), balancedMachine()},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.machine.Validate(); err != nil {
				t.Fatal(err)
			}
			driver, err := simulator.New(tc.machine.Simulator("dgx-1"))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(driver.Init(), tc.machine.Partition("dgx-1", driver)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, migLayouts(t, driver)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func balancedMachine() map[int]string {
	all := map[int]string{}
	for i := range 8 {
		all[i] = "2g.10gb@0 1g.5gb@2 1g.5gb@3 3g.20gb@4"
	}
	return all
}

func migLayouts(t *testing.T, driver nvml.Library) map[int]string {
	t.Helper()
	gpus, err := driver.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, gpu := range gpus {
		if mode, _, err := driver.MIGMode(gpu.UUID); err != nil || mode == nvml.Disabled {
			continue
		}
		instances, err := driver.Instances(gpu.UUID)
		if err != nil {
			t.Fatal(err)
		}
		model, _ := mig.ModelByPCIDevice(gpu.PCIDevice)
		layout := mig.GPU{Model: model}
		for _, instance := range instances {
			for i := range model.Profiles {
				if nvml.ProfileID(model.Profiles[i].ID) == instance.Profile {
					layout.Instances = append(layout.Instances, mig.Instance{Profile: &model.Profiles[i], Start: instance.Placement.Start})
				}
			}
		}
		found[gpu.Index] = layout.String()
	}
	return found
}

func TestMachineValidate(t *testing.T) {
	layout := func(instances ...MIGInstance) func(*Machine) {
		return func(m *Machine) { m.MIG = []MIGLayout{{Instances: instances}} }
	}
	h100 := func(m *Machine) { m.GPUModel = "h100-80gb" }
	for _, tc := range []struct {
		name   string
		change func(*Machine)
		want   string
	}{
		{"a DGX A100", func(*Machine) {}, ""},
		{"a balanced machine", func(m *Machine) { *m = DGXA100Balanced() }, ""},
		{"seven small instances", layout(MIGInstance{"1g.5gb", 0}, MIGInstance{"1g.5gb", 1}, MIGInstance{"1g.5gb", 2}, MIGInstance{"1g.5gb", 3},
			MIGInstance{"1g.5gb", 4}, MIGInstance{"1g.5gb", 5}, MIGInstance{"1g.5gb", 6}), ""},
		{"double memory", layout(MIGInstance{"1g.10gb", 6}, MIGInstance{"4g.20gb", 0}), ""},
		{"an H100", func(m *Machine) { h100(m); layout(MIGInstance{"3g.40gb", 4}, MIGInstance{"1g.10gb", 0})(m) }, ""},
		{"in MIG mode and empty", layout(), ""},
		{"no GPU model", func(m *Machine) { m.GPUModel = "" }, `gpuModel "": must be one of A100-40GB`},
		{"a model with blanks", func(m *Machine) { m.Model = "DGX A100" }, `model "DGX A100": must be a label value`},
		{"a GPU model without MIG", func(m *Machine) { *m = DGXA100MIG(); m.GPUModel = "L4" }, "mig: GPU model L4 cannot be partitioned"},
		{"no model", func(m *Machine) { m.Model = "" }, `model "": must be a label value`},
		{"no GPUs", func(m *Machine) { m.GPUs = 0 }, "gpus 0: must be 1 to 16"},
		{"too many replicas", func(m *Machine) { m.Replicas = 17 }, "replicas 17: must be 0 to 16"},
		{"replicas of MIG devices", func(m *Machine) { *m = DGXA100MIG(); m.Replicas = 2 }, "replicas 2: only whole GPUs are shared"},
		{"no CPUs", func(m *Machine) { m.CPUs = -1 }, "cpus -1: must be 1 to"},
		{"no profile", layout(MIGInstance{"big", 0}), `mig[0].instances[0].profile: A100-40GB has no MIG profile "big"; it has`},
		{
			"another GPU model's profile", layout(MIGInstance{"1g.10gb", 0}, MIGInstance{"3g.40gb", 4}),
			`mig[0].instances[1].profile: A100-40GB has no MIG profile "3g.40gb"`,
		},
		{"an invalid start", layout(MIGInstance{"3g.20gb", 2}), "mig[0].instances: 3g.20gb cannot start at 2 on A100-40GB, only at [0 4]"},
		{"outside of the GPU", layout(MIGInstance{"1g.5gb", 7}), "mig[0].instances: 1g.5gb cannot start at 7"},
		{"an overlap", layout(MIGInstance{"2g.10gb", 0}, MIGInstance{"1g.5gb", 1}), "mig[0].instances: 1g.5gb at 1 overlaps another instance"},
		{
			"media extensions twice", layout(MIGInstance{"1g.5gb+me", 0}, MIGInstance{"1g.5gb+me", 1}),
			"mig[0].instances: 2 instances of 1g.5gb+me; A100-40GB has at most 1",
		},
		{
			"no such GPU", func(m *Machine) { m.MIG = []MIGLayout{{Devices: []int{8}}} },
			"mig[0].devices: there is no GPU 8; the indices are 0 to 7",
		},
		{"listed twice", func(m *Machine) { m.MIG = []MIGLayout{{Devices: []int{3}}, {}} }, "mig[1].devices: GPU 3 is listed twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := DGXA100()
			tc.change(&m)
			err := m.Validate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
