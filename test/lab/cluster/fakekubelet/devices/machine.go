// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

const (
	maxGPUs     = 16
	maxReplicas = 16
)

// Machine describes one server.
type Machine struct {
	// Model of the server, as its firmware names it.
	Model string `json:"model"`
	// GPUModel is the model of its GPUs, by its name in package simulator: "A100-40GB".
	GPUModel string `json:"gpuModel"`
	// GPUs is the number of GPUs, 1 to 16, all of one model.
	GPUs int `json:"gpus"`
	// MIG lists the GPUs in MIG mode and their layout when the machine is new; other GPUs
	// are whole. Later the agent partitions the GPUs, and a boot removes all instances.
	MIG []MIGLayout `json:"mig,omitempty"`
	// Replicas is the number of replicas of each whole GPU that the device plugin offers with
	// time-slicing, up to 16; 0 and 1 mean that it shares none. Not with mig.
	Replicas int `json:"replicas,omitempty"`
	// CPUs is the number of hardware threads.
	CPUs int64 `json:"cpus"`
	// HostMemoryGiB is the machine's main memory.
	HostMemoryGiB int64 `json:"hostMemoryGiB"`
	// DiskGiB is the disk space for containers.
	DiskGiB int64 `json:"diskGiB"`
}

// MIGLayout describes the partitioning of some GPUs.
type MIGLayout struct {
	// Devices lists the indices of the GPUs; empty means all.
	Devices []int `json:"devices,omitempty"`
	// Instances on each of the GPUs; empty means MIG mode without instances.
	Instances []MIGInstance `json:"instances,omitempty"`
}

// MIGInstance is a GPU instance with a compute instance of the same size.
type MIGInstance struct {
	// Profile is a profile such as "1g.5gb".
	Profile string `json:"profile"`
	// Start is the first memory slice, 0 to 7.
	Start int `json:"start"`
}

// DGXA100 returns a DGX A100 with 320 GB of GPU memory: eight whole A100, two AMD EPYC 7742
// (2 x 64 cores, 256 threads), 1 TiB of memory.
func DGXA100() Machine {
	return Machine{
		Model:         "DGXA100-920-23687-2530-000",
		GPUModel:      "A100-40GB",
		GPUs:          8,
		CPUs:          256,
		HostMemoryGiB: 1024,
		DiskGiB:       1760,
	}
}

// DGXA100MIG returns a DGX A100 whose GPUs are in MIG mode without instances.
func DGXA100MIG() Machine {
	m := DGXA100()
	m.MIG = []MIGLayout{{}}
	return m
}

// DGXA100Balanced returns a DGX A100 with mig-parted's configuration all-balanced: on each
// GPU 2 x 1g.5gb, 1 x 2g.10gb and 1 x 3g.20gb.
func DGXA100Balanced() Machine {
	m := DGXA100()
	m.MIG = []MIGLayout{{Instances: []MIGInstance{
		{Profile: "2g.10gb", Start: 0},
		{Profile: "1g.5gb", Start: 2},
		{Profile: "1g.5gb", Start: 3},
		{Profile: "3g.20gb", Start: 4},
	}}}
	return m
}

// Validate returns an error that names the first invalid field, its value and the allowed
// values.
func (m Machine) Validate() error {
	if errs := validation.IsValidLabelValue(m.Model); m.Model == "" || len(errs) > 0 {
		return fmt.Errorf("model %q: must be a label value, such as DGXH100%s", m.Model, fieldError(errs))
	}
	known := func(name string) bool { return strings.EqualFold(name, m.GPUModel) }
	if !slices.ContainsFunc(simulator.Models(), known) {
		return fmt.Errorf("gpuModel %q: must be one of %s", m.GPUModel, strings.Join(simulator.Models(), ", "))
	}
	if m.GPUs < 1 || m.GPUs > maxGPUs {
		return fmt.Errorf("gpus %d: must be 1 to %d", m.GPUs, maxGPUs)
	}
	for _, field := range []struct {
		name  string
		value int64
	}{{"cpus", m.CPUs}, {"hostMemoryGiB", m.HostMemoryGiB}, {"diskGiB", m.DiskGiB}} {
		if field.value < 1 || field.value > 1<<30 {
			return fmt.Errorf("%s %d: must be 1 to %d", field.name, field.value, 1<<30)
		}
	}
	if m.Replicas < 0 || m.Replicas > maxReplicas {
		return fmt.Errorf("replicas %d: must be 0 to %d", m.Replicas, maxReplicas)
	}
	if m.Replicas > 1 && len(m.MIG) > 0 {
		return fmt.Errorf("replicas %d: only whole GPUs are shared; leave out mig", m.Replicas)
	}
	return m.validateLayouts()
}

func (m Machine) validateLayouts() error {
	model, migCapable := mig.ModelByName(m.GPUModel)
	if !migCapable && len(m.MIG) > 0 {
		return fmt.Errorf("mig: GPU model %s cannot be partitioned; leave it out", m.GPUModel)
	}
	partitioned := make([]bool, m.GPUs)
	for i, layout := range m.MIG {
		for _, gpu := range m.layoutDevices(layout) {
			if gpu < 0 || gpu >= m.GPUs {
				return fmt.Errorf("mig[%d].devices: there is no GPU %d; the indices are 0 to %d", i, gpu, m.GPUs-1)
			}
			if partitioned[gpu] {
				return fmt.Errorf("mig[%d].devices: GPU %d is listed twice; list each once", i, gpu)
			}
			partitioned[gpu] = true
		}
		gpu := mig.GPU{Model: model}
		for j, instance := range layout.Instances {
			profile, err := model.Profile(v1alpha1.MIGProfile(instance.Profile))
			if err != nil {
				return fmt.Errorf("mig[%d].instances[%d].profile: %w", i, j, err)
			}
			gpu.Instances = append(gpu.Instances, mig.Instance{Profile: profile, Start: instance.Start})
		}
		if err := gpu.Check(); err != nil {
			return fmt.Errorf("mig[%d].instances: %w", i, err)
		}
	}
	return nil
}

func (m Machine) layoutDevices(layout MIGLayout) []int {
	if len(layout.Devices) > 0 {
		return layout.Devices
	}
	all := make([]int, m.GPUs)
	for i := range all {
		all[i] = i
	}
	return all
}

func fieldError(errs []string) string {
	if len(errs) == 0 {
		return ""
	}
	return " (" + strings.Join(errs, "; ") + ")"
}

const (
	maxPods = 110 // a kubelet's default
	// evictionMiB is the memory that a kubelet reserves by default, so that it can evict
	// pods before the kernel kills processes.
	evictionMiB = 100
)

// Capacity returns the capacity that a kubelet with these devices reports.
func (m Machine) Capacity(s State) corev1.ResourceList {
	return m.resources(s, 0)
}

// Allocatable returns the capacity less what a kubelet reserves by default.
func (m Machine) Allocatable(s State) corev1.ResourceList {
	return m.resources(s, evictionMiB)
}

func (m Machine) resources(s State, reservedMiB int64) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(m.CPUs, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(m.HostMemoryGiB<<30-reservedMiB<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.DiskGiB<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	for name, count := range s.Capacity() {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}
	return list
}

// identities is the namespace of all UUIDs of this package.
var identities = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("sim.sluice.dev"))

// GPUID returns the UUID ("GPU-...") of a node's GPU by its index.
func GPUID(node string, index int) string {
	return "GPU-" + uuid.NewSHA1(identities, fmt.Appendf(nil, "%s/gpu%d", node, index)).String()
}

// Simulator returns the configuration of the GPUs of a new machine, which must be valid.
// The GPUs have no instances and no latency, and are in MIG mode if they have a layout.
func (m Machine) Simulator(node string) simulator.Config {
	config := simulator.Config{Seed: node}
	for i := range m.GPUs {
		config.GPUs = append(config.GPUs, simulator.GPU{Model: m.GPUModel, UUID: GPUID(node, i)})
	}
	for _, layout := range m.MIG {
		for _, gpu := range m.layoutDevices(layout) {
			config.GPUs[gpu].Mode = nvml.Enabled
		}
	}
	return config
}

// Partition partitions the GPUs of a new machine.
func (m Machine) Partition(node string, driver nvml.Library) error {
	model, _ := mig.ModelByName(m.GPUModel)
	for _, layout := range m.MIG {
		for _, index := range m.layoutDevices(layout) {
			for _, instance := range layout.Instances {
				profile, err := model.Profile(v1alpha1.MIGProfile(instance.Profile))
				if err != nil {
					return err
				}
				gpu, at := GPUID(node, index), nvml.Placement{Start: instance.Start, Size: profile.Memory}
				created, err := driver.CreateInstance(gpu, nvml.ProfileID(profile.ID), at)
				if err != nil {
					return fmt.Errorf("%s at %d of GPU %d: %w", instance.Profile, instance.Start, index, err)
				}
				if _, err := driver.CreateComputeInstance(gpu, created.ID); err != nil {
					return fmt.Errorf("%s at %d of GPU %d: %w", instance.Profile, instance.Start, index, err)
				}
			}
		}
	}
	return nil
}

// Product returns the product label of its GPUs ("NVIDIA-A100-SXM4-40GB"), or "" for an
// unknown model.
func (m Machine) Product() string {
	m.GPUs, m.MIG = 1, nil
	driver, err := simulator.New(m.Simulator(""))
	if err != nil || driver.Init() != nil {
		return ""
	}
	gpus, err := driver.GPUs()
	if err != nil {
		return ""
	}
	return Product(gpus[0].Name)
}
