// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine describes a GPU server: what is in it, and how its GPUs are cut
// when it is new.
//
// What enters is a Machine. What leaves are its GPUs for package simulator, and what
// a kubelet would report as capacity. All of it follows from the description and
// the node's name, so that it is the same each time. The package does no I/O, and
// never places an instance: where each one is, is said.
package machine

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
	"sluice.dev/test/cluster/fakekubelet/devices"
)

const maxGPUs = 16

// Machine describes one server.
type Machine struct {
	// Model of the server, as its firmware names it.
	Model string `json:"model"`
	// GPUModel is what its GPUs are, as package simulator calls them: "A100-40GB".
	GPUModel string `json:"board"`
	// GPUs in the machine, 1 to 16, all alike.
	GPUs int `json:"gpus"`
	// MIG says which GPUs are in MIG mode, and how they are cut when the machine is
	// new; one that no Cut names is whole. Later on its agent cuts them, and after a
	// boot all are empty.
	MIG []MIGLayout `json:"mig,omitempty"`
	// CPUs are the hardware threads.
	CPUs int64 `json:"cpus"`
	// HostMemoryGiB is the machine's own memory.
	HostMemoryGiB int64 `json:"hostMemoryGiB"`
	// DiskGiB is what containers may fill of the system's disk.
	DiskGiB int64 `json:"diskGiB"`
}

// MIGLayout is how some of the GPUs are partitioned.
type MIGLayout struct {
	// Devices are the GPUs' indices; none means all.
	Devices []int `json:"devices,omitempty"`
	// Instances on each of them. None is a GPU in MIG mode with nothing on it.
	Instances []Instance `json:"instances,omitempty"`
}

// Instance is one GPU instance, with the compute instance that fills it.
type Instance struct {
	// Profile is "1g.5gb" and the like.
	Profile string `json:"profile"`
	// Start is the memory slice at which it begins, 0 to 7.
	Start int `json:"start"`
}

// DGXA100 is the DGX A100 with 320 GB of GPU memory: eight whole A100, two AMD
// EPYC 7742 (2 x 64 cores, 256 threads), 1 TiB of memory.
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

// DGXA100MIG is a DGX A100 whose GPUs are in MIG mode, with nothing on them yet.
func DGXA100MIG() Machine {
	m := DGXA100()
	m.MIG = []MIGLayout{{}}
	return m
}

// DGXA100Balanced is a DGX A100 as mig-parted's configuration all-balanced cuts
// it: on each GPU 2 x 1g.5gb, 1 x 2g.10gb and 1 x 3g.20gb.
func DGXA100Balanced() Machine {
	m := DGXA100()
	m.MIG = []MIGLayout{{Instances: []Instance{
		{Profile: "2g.10gb", Start: 0},
		{Profile: "1g.5gb", Start: 2},
		{Profile: "1g.5gb", Start: 3},
		{Profile: "3g.20gb", Start: 4},
	}}}
	return m
}

// Validate returns an error that names the first field that is wrong, the value
// and what is allowed.
func (m Machine) Validate() error {
	if errs := validation.IsValidLabelValue(m.Model); m.Model == "" || len(errs) > 0 {
		return fmt.Errorf("model %q: must be a label value, say DGXH100%s", m.Model, fieldError(errs))
	}
	known := func(name string) bool { return strings.EqualFold(name, m.GPUModel) }
	if !slices.ContainsFunc(simulator.Models(), known) {
		return fmt.Errorf("board %q: must be one of %s", m.GPUModel, strings.Join(simulator.Models(), ", "))
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
	return m.validateLayouts()
}

func (m Machine) validateLayouts() error {
	board, cuttable := mig.ModelByName(m.GPUModel)
	if !cuttable && len(m.MIG) > 0 {
		return fmt.Errorf("mig: board %s cannot be cut; leave it out", m.GPUModel)
	}
	cut := make([]bool, m.GPUs)
	for i, c := range m.MIG {
		for _, gpu := range m.layoutDevices(c) {
			if gpu < 0 || gpu >= m.GPUs {
				return fmt.Errorf("mig[%d].devices: there is no GPU %d; the indices are 0 to %d", i, gpu, m.GPUs-1)
			}
			if cut[gpu] {
				return fmt.Errorf("mig[%d].devices: GPU %d is cut twice; name each once", i, gpu)
			}
			cut[gpu] = true
		}
		gpu := mig.GPU{Model: board}
		for j, instance := range c.Instances {
			profile, err := board.Profile(v1alpha1.MIGProfile(instance.Profile))
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

func (m Machine) layoutDevices(c MIGLayout) []int {
	if len(c.Devices) > 0 {
		return c.Devices
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
	// evictionMiB is what a kubelet keeps back of the memory by default, so that
	// it can evict pods before the kernel kills something.
	evictionMiB = 100
)

// Capacity returns what a kubelet with these devices would report as the node's
// capacity.
func (m Machine) Capacity(s devices.State) corev1.ResourceList {
	return m.resources(s, 0)
}

// Allocatable is Capacity less what a kubelet keeps for itself by default.
func (m Machine) Allocatable(s devices.State) corev1.ResourceList {
	return m.resources(s, evictionMiB)
}

func (m Machine) resources(s devices.State, reservedMiB int64) corev1.ResourceList {
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

// identities is the namespace of all UUIDs made here.
var identities = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("sim.sluice.dev"))

// GPUID returns the UUID of a node's GPU by its index in a new machine: "GPU-...".
func GPUID(node string, index int) string {
	return "GPU-" + uuid.NewSHA1(identities, fmt.Appendf(nil, "%s/gpu%d", node, index)).String()
}

// Simulator returns the GPUs of a new machine, which must be valid: in MIG mode
// where it says so, and with nothing on them yet. They take no time.
func (m Machine) Simulator(node string) simulator.Config {
	config := simulator.Config{Seed: node}
	for i := range m.GPUs {
		config.GPUs = append(config.GPUs, simulator.GPU{Model: m.GPUModel, UUID: GPUID(node, i)})
	}
	for _, c := range m.MIG {
		for _, gpu := range m.layoutDevices(c) {
			config.GPUs[gpu].Mode = nvml.Enabled
		}
	}
	return config
}

// Partition cuts the GPUs of a new machine as it says.
func (m Machine) Partition(node string, driver nvml.Library) error {
	board, _ := mig.ModelByName(m.GPUModel)
	for _, c := range m.MIG {
		for _, index := range m.layoutDevices(c) {
			for _, instance := range c.Instances {
				profile, err := board.Profile(v1alpha1.MIGProfile(instance.Profile))
				if err != nil {
					return err
				}
				gpu, at := GPUID(node, index), nvml.Placement{Start: instance.Start, Size: profile.Memory}
				made, err := driver.CreateInstance(gpu, nvml.ProfileID(profile.ID), at)
				if err != nil {
					return fmt.Errorf("%s at %d of GPU %d: %w", instance.Profile, instance.Start, index, err)
				}
				if _, err := driver.CreateComputeInstance(gpu, made.ID); err != nil {
					return fmt.Errorf("%s at %d of GPU %d: %w", instance.Profile, instance.Start, index, err)
				}
			}
		}
	}
	return nil
}

// Product is how GPU feature discovery calls its GPUs: "NVIDIA-A100-SXM4-40GB"; empty
// where the board is not known.
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
	return strings.ReplaceAll(gpus[0].Name, " ", "-")
}
