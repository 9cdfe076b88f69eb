// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

// newSimulatedNode returns the driver of a new machine.
func newSimulatedNode(t *testing.T, m devices.Machine) *simulator.Node {
	t.Helper()
	driver, err := simulator.New(m.Simulator("dgx-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(driver.Init(), m.Partition("dgx-1", driver)); err != nil {
		t.Fatal(err)
	}
	return driver
}

func readGPUs(t *testing.T, driver nvml.Library) []devices.GPU {
	t.Helper()
	gpus, err := devices.ReadGPUs(driver, 0)
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

// A shared GPU is as many devices as it has replicas, each with its part of the memory. The driver knows only
// the GPU.
func TestReplicas(t *testing.T) {
	gpus, err := devices.ReadGPUs(newSimulatedNode(t, devices.DGXA100()), 4)
	if err != nil {
		t.Fatal(err)
	}
	list, memory := devices.OfGPUs(gpus), devices.MemoryMiB(gpus)
	first := devices.GPUID("dgx-1", 0)
	if len(list) != 32 || list[1] != (devices.Device{ID: first + "::1", Resource: "nvidia.com/gpu"}) || memory[first+"::1"] != 10240 {
		t.Errorf("%d devices, the second is %v with %d MiB", len(list), list[1], memory[list[1].ID])
	}
	if got := devices.DriverDevice(list[1].ID); got != first {
		t.Errorf("the driver's device is %s, want %s", got, first)
	}
	labels := devices.Labels("DGXA100", gpus)
	for label, want := range map[string]string{
		"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED",
	} {
		if labels[label] != want {
			t.Errorf("label %s is %q, want %s", label, labels[label], want)
		}
	}
}

func TestDevices(t *testing.T) {
	for i, device := range devices.OfGPUs(readGPUs(t, newSimulatedNode(t, devices.DGXA100()))) {
		if want := (devices.Device{ID: devices.GPUID("dgx-1", i), Resource: "nvidia.com/gpu"}); device != want {
			t.Errorf("device %d is %v, want %v", i, device, want)
		}
	}
	gpus := readGPUs(t, newSimulatedNode(t, devices.DGXA100Balanced()))
	partitioned := devices.OfGPUs(gpus)
	var resources []string
	known, memory := map[string]bool{}, devices.MemoryMiB(gpus)
	for _, device := range partitioned {
		resources = append(resources, device.Resource)
		if !strings.HasPrefix(device.ID, "MIG-") || known[device.ID] || memory[device.ID] == 0 {
			t.Errorf("%q with %d MiB is not a unique MIG device", device.ID, memory[device.ID])
		}
		known[device.ID] = true
	}
	first := []string{"nvidia.com/mig-2g.10gb", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"}
	if diff := cmp.Diff(first, resources[:4]); diff != "" || len(partitioned) != 32 {
		t.Errorf("%d devices; of the first GPU (-want +got):\n%s", len(partitioned), diff)
	}
	if got := devices.OfGPUs(readGPUs(t, newSimulatedNode(t, devices.DGXA100MIG()))); len(got) != 0 {
		t.Errorf("empty GPUs in MIG mode are %v", got)
	}
}

func TestUnallocatableDevicesOmitted(t *testing.T) {
	driver := newSimulatedNode(t, devices.DGXA100Balanced())
	one, other := devices.GPUID("dgx-1", 0), devices.GPUID("dgx-1", 1)
	instances, err := driver.Instances(one)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(driver.DestroyComputeInstance(one, instances[0].ID, 0), driver.Lose(other)); err != nil {
		t.Fatal(err)
	}
	if got := devices.OfGPUs(readGPUs(t, driver)); len(got) != 32-1-4 {
		t.Errorf("%d devices, want those with a compute instance, on the reachable GPUs: 27", len(got))
	}
	driver.Deny(true)
	if _, err := devices.ReadGPUs(driver, 0); !errors.Is(err, nvml.ErrNoPermission) {
		t.Errorf("without permission: %v, want %v", err, nvml.ErrNoPermission)
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
	labels := func(m devices.Machine) map[string]string {
		return devices.Labels(m.Model, readGPUs(t, newSimulatedNode(t, m)))
	}
	if diff := cmp.Diff(whole, labels(devices.DGXA100())); diff != "" {
		t.Errorf("whole GPUs (-want +got):\n%s", diff)
	}

	partitioned := maps.Clone(whole)
	partitioned["nvidia.com/gpu.replicas"] = "0"
	if diff := cmp.Diff(partitioned, labels(devices.DGXA100MIG())); diff != "" {
		t.Errorf("empty GPUs in MIG mode (-want +got):\n%s", diff)
	}
	for profile, attributes := range map[string][6]string{
		// count, memory, multiprocessors, slices, copy engines, decoders
		"1g.5gb":  {"16", "4864", "14", "1", "1", "0"},
		"2g.10gb": {"8", "9856", "28", "2", "2", "1"},
		"3g.20gb": {"8", "19968", "42", "3", "3", "2"},
	} {
		prefix := "nvidia.com/mig-" + profile + "."
		partitioned[prefix+"product"] = "NVIDIA-A100-SXM4-40GB-MIG-" + profile
		partitioned[prefix+"replicas"] = "1"
		partitioned[prefix+"count"] = attributes[0]
		partitioned[prefix+"memory"] = attributes[1]
		partitioned[prefix+"multiprocessors"] = attributes[2]
		partitioned[prefix+"slices.gi"] = attributes[3]
		partitioned[prefix+"slices.ci"] = attributes[3]
		partitioned[prefix+"engines.copy"] = attributes[4]
		partitioned[prefix+"engines.decoder"] = attributes[5]
		partitioned[prefix+"engines.encoder"] = "0"
		partitioned[prefix+"engines.jpeg"] = "0"
		partitioned[prefix+"engines.ofa"] = "0"
	}
	if diff := cmp.Diff(partitioned, labels(devices.DGXA100Balanced())); diff != "" {
		t.Errorf("partitioned GPUs (-want +got):\n%s", diff)
	}

	media := devices.DGXA100()
	media.MIG = []devices.MIGLayout{{Instances: []devices.MIGInstance{{Profile: "1g.5gb+me", Start: 6}}}}
	for key, value := range labels(media) {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			t.Errorf("label key %s: %v", key, errs)
		}
		if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
			t.Errorf("label %s: %q: %v", key, value, errs)
		}
	}
	if got := labels(media)["nvidia.com/mig-1g.5gb.me.engines.jpeg"]; got != "1" {
		t.Errorf("the media extensions' JPEG engines are %q, want 1", got)
	}
}
