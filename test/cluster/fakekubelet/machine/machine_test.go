// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/test/cluster/fakekubelet/devices"
)

func TestDevices(t *testing.T) {
	whole := DGXA100().Devices("dgx-1")
	if len(whole) != 8 {
		t.Fatalf("a DGX A100 has %d devices, want 8", len(whole))
	}
	for i, device := range whole {
		if want := (devices.Device{ID: GPUID("dgx-1", i), Resource: "nvidia.com/gpu"}); device != want {
			t.Errorf("device %d is %v, want %v", i, device, want)
		}
		if !strings.HasPrefix(device.ID, "GPU-") || len(device.ID) != len("GPU-")+36 {
			t.Errorf("%q is no GPU's UUID", device.ID)
		}
	}
	cut := DGXA100Balanced().Devices("dgx-1")
	var first []string
	for _, device := range cut[:4] {
		first = append(first, device.Resource)
	}
	want := []string{"nvidia.com/mig-2g.10gb", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("the first GPU's instances (-want +got):\n%s", diff)
	}
	seen := map[string]bool{}
	for _, list := range [][]devices.Device{whole, cut, DGXA100().Devices("dgx-2")} {
		for _, device := range list {
			if seen[device.ID] {
				t.Errorf("%s is there twice", device.ID)
			}
			seen[device.ID] = true
		}
	}
	if diff := cmp.Diff(cut, DGXA100Balanced().Devices("dgx-1")); diff != "" {
		t.Errorf("asked twice (-first +second):\n%s", diff)
	}
	// Agents and users write these down: they must not change between versions.
	if got, want := whole[0].ID, "GPU-fe17984b-2759-5e17-b335-c5d6d69071e7"; got != want {
		t.Errorf("the first GPU of dgx-1 is %s, want %s", got, want)
	}
}

func TestAMachineMayBeCutInPart(t *testing.T) {
	m := DGXA100()
	m.MIG = []Cut{{Devices: []int{1}, Instances: []Instance{{"7g.40gb", 0}}}, {Devices: []int{7}}}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	capacity := devices.New(m.Devices("n"), nil).Capacity()
	if diff := cmp.Diff(map[string]int{"nvidia.com/gpu": 6, "nvidia.com/mig-7g.40gb": 1}, capacity); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	if got := m.Labels()["nvidia.com/gpu.replicas"]; got != "1" {
		t.Errorf("gpu.replicas is %s where some GPUs are whole, want 1", got)
	}
	if got := m.Labels()["nvidia.com/gpu.count"]; got != "8" {
		t.Errorf("gpu.count is %s, want all 8", got)
	}
}

func TestLabels(t *testing.T) {
	whole := map[string]string{
		"nvidia.com/gpu.machine":          "DGXA100-920-23687-2530-000",
		"nvidia.com/gpu.product":          "NVIDIA-A100-SXM4-40GB",
		"nvidia.com/gpu.family":           "ampere",
		"nvidia.com/gpu.compute.major":    "8",
		"nvidia.com/gpu.compute.minor":    "0",
		"nvidia.com/gpu.count":            "8",
		"nvidia.com/gpu.memory":           "40960",
		"nvidia.com/gpu.mode":             "compute",
		"nvidia.com/gpu.replicas":         "1",
		"nvidia.com/gpu.sharing-strategy": "none",
		"nvidia.com/mig.capable":          "true",
		"nvidia.com/mig.strategy":         "mixed",
		"nvidia.com/mps.capable":          "false",
	}
	if diff := cmp.Diff(whole, DGXA100().Labels()); diff != "" {
		t.Errorf("whole GPUs (-want +got):\n%s", diff)
	}

	cut := map[string]string{}
	for key, value := range whole {
		cut[key] = value
	}
	cut["nvidia.com/gpu.replicas"] = "0"
	for profile, attributes := range map[string][6]string{
		// count, memory, multiprocessors, slices, copy engines, decoders
		"1g.5gb":  {"16", "4864", "14", "1", "1", "0"},
		"2g.10gb": {"8", "9856", "28", "2", "2", "1"},
		"3g.20gb": {"8", "19968", "42", "3", "3", "2"},
	} {
		prefix := "nvidia.com/mig-" + profile + "."
		cut[prefix+"product"] = "NVIDIA-A100-SXM4-40GB-MIG-" + profile
		cut[prefix+"replicas"] = "1"
		cut[prefix+"count"] = attributes[0]
		cut[prefix+"memory"] = attributes[1]
		cut[prefix+"multiprocessors"] = attributes[2]
		cut[prefix+"slices.gi"] = attributes[3]
		cut[prefix+"slices.ci"] = attributes[3]
		cut[prefix+"engines.copy"] = attributes[4]
		cut[prefix+"engines.decoder"] = attributes[5]
		cut[prefix+"engines.encoder"] = "0"
		cut[prefix+"engines.jpeg"] = "0"
		cut[prefix+"engines.ofa"] = "0"
	}
	if diff := cmp.Diff(cut, DGXA100Balanced().Labels()); diff != "" {
		t.Errorf("cut GPUs (-want +got):\n%s", diff)
	}

	media := DGXA100()
	media.MIG = []Cut{{Instances: []Instance{{"1g.5gb+me", 6}}}}
	for key, value := range media.Labels() {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			t.Errorf("label key %s: %v", key, errs)
		}
		if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
			t.Errorf("label %s: %q: %v", key, value, errs)
		}
	}
	if got := media.Labels()["nvidia.com/mig-1g.5gb.me.engines.jpeg"]; got != "1" {
		t.Errorf("the media extensions' JPEG engines are %q, want 1", got)
	}
}

func TestCapacity(t *testing.T) {
	m := DGXA100()
	s := devices.New(m.Devices("dgx-1"), nil)
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

func TestValidate(t *testing.T) {
	cut := func(instances ...Instance) func(*Machine) {
		return func(m *Machine) { m.MIG = []Cut{{Instances: instances}} }
	}
	h100 := func(m *Machine) { m.Product, m.MemoryMiB = "NVIDIA-H100-80GB-HBM3", 81559 }
	for _, tc := range []struct {
		name   string
		change func(*Machine)
		want   string
	}{
		{"a DGX A100", func(*Machine) {}, ""},
		{"a balanced one", func(m *Machine) { *m = DGXA100Balanced() }, ""},
		{"seven small ones", cut(Instance{"1g.5gb", 0}, Instance{"1g.5gb", 1}, Instance{"1g.5gb", 2}, Instance{"1g.5gb", 3},
			Instance{"1g.5gb", 4}, Instance{"1g.5gb", 5}, Instance{"1g.5gb", 6}), ""},
		{"double memory", cut(Instance{"1g.10gb", 6}, Instance{"4g.20gb", 0}), ""},
		{"an H100", func(m *Machine) { h100(m); cut(Instance{"3g.40gb", 4}, Instance{"1g.10gb", 0})(m) }, ""},
		{"in MIG mode and empty", cut(), ""},
		{"no product", func(m *Machine) { m.Product = "" }, `product "": must be a label value`},
		{"a product with blanks", func(m *Machine) { m.Product = "NVIDIA A100" }, `product "NVIDIA A100": must be a label value`},
		{"no model", func(m *Machine) { m.Model = "" }, `model "": must be a label value`},
		{"no GPUs", func(m *Machine) { m.GPUs = 0 }, "gpus 0: must be 1 to 16"},
		{"no memory", func(m *Machine) { m.MemoryMiB = 0 }, "memoryMiB 0: must be 1 to"},
		{"no CPUs", func(m *Machine) { m.CPUs = -1 }, "cpus -1: must be 1 to"},
		{"no profile", cut(Instance{"big", 0}), `mig[0].instances[0].profile: "big" is no MIG profile; write it like 1g.5gb`},
		{"another board's profile", cut(Instance{"1g.10gb", 0}, Instance{"3g.40gb", 4}), `mig[0].instances[1].profile: "3g.40gb" is no profile of a GPU with 40960 MiB`},
		{"a place where it cannot be", cut(Instance{"3g.20gb", 2}), "mig[0].instances[0].start 2: 3g.20gb can begin at [0 4]"},
		{"outside of the GPU", cut(Instance{"1g.5gb", 7}), "mig[0].instances[0].start 7: 1g.5gb can begin at"},
		{"an overlap", cut(Instance{"2g.10gb", 0}, Instance{"1g.5gb", 1}), "mig[0].instances[1]: 1g.5gb at 1 overlaps 2g.10gb at 0"},
		{"media extensions twice", cut(Instance{"1g.5gb+me", 0}, Instance{"1g.5gb+me", 1}), "mig[0].instances: only one instance"},
		{"no such GPU", func(m *Machine) { m.MIG = []Cut{{Devices: []int{8}}} }, "mig[0].devices: there is no GPU 8; the indices are 0 to 7"},
		{"cut twice", func(m *Machine) { m.MIG = []Cut{{Devices: []int{3}}, {}} }, "mig[1].devices: GPU 3 is cut twice"},
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
