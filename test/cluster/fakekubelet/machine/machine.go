// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml/simulator"
)

const maxGPUs = 16

// Machine describes one server.
type Machine struct {
	// Model of the server, as its firmware names it.
	Model string `json:"model"`
	// Board is what its GPUs are, as package simulator calls them: "A100-40GB".
	Board string `json:"board"`
	// GPUs in the machine, 1 to 16, all alike.
	GPUs int `json:"gpus"`
	// MIG says which GPUs are in MIG mode, and how they are cut when the machine is
	// new; one that no Cut names is whole. Later on its agent cuts them, and after a
	// boot all are empty.
	MIG []Cut `json:"mig,omitempty"`
	// CPUs are the hardware threads.
	CPUs int64 `json:"cpus"`
	// HostMemoryGiB is the machine's own memory.
	HostMemoryGiB int64 `json:"hostMemoryGiB"`
	// DiskGiB is what containers may fill of the system's disk.
	DiskGiB int64 `json:"diskGiB"`
}

// Cut is how some of the GPUs are partitioned.
type Cut struct {
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
		Board:         "A100-40GB",
		GPUs:          8,
		CPUs:          256,
		HostMemoryGiB: 1024,
		DiskGiB:       1760,
	}
}

// DGXA100MIG is a DGX A100 whose GPUs are in MIG mode, with nothing on them yet.
func DGXA100MIG() Machine {
	m := DGXA100()
	m.MIG = []Cut{{}}
	return m
}

// DGXA100Balanced is a DGX A100 as mig-parted's configuration all-balanced cuts
// it: on each GPU 2 x 1g.5gb, 1 x 2g.10gb and 1 x 3g.20gb.
func DGXA100Balanced() Machine {
	m := DGXA100()
	m.MIG = []Cut{{Instances: []Instance{
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
		return fmt.Errorf("model %q: must be a label value, say DGXH100%s", m.Model, because(errs))
	}
	known := func(name string) bool { return strings.EqualFold(name, m.Board) }
	if !slices.ContainsFunc(simulator.Boards(), known) {
		return fmt.Errorf("board %q: must be one of %s", m.Board, strings.Join(simulator.Boards(), ", "))
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
	return m.validateCuts()
}

func (m Machine) validateCuts() error {
	board, cuttable := mig.BoardNamed(m.Board)
	if !cuttable && len(m.MIG) > 0 {
		return fmt.Errorf("mig: board %s cannot be cut; leave it out", m.Board)
	}
	cut := make([]bool, m.GPUs)
	for i, c := range m.MIG {
		for _, gpu := range m.devicesOf(c) {
			if gpu < 0 || gpu >= m.GPUs {
				return fmt.Errorf("mig[%d].devices: there is no GPU %d; the indices are 0 to %d", i, gpu, m.GPUs-1)
			}
			if cut[gpu] {
				return fmt.Errorf("mig[%d].devices: GPU %d is cut twice; name each once", i, gpu)
			}
			cut[gpu] = true
		}
		gpu := mig.GPU{Board: board}
		for j, instance := range c.Instances {
			profile, err := board.Named(v1alpha1.MIGProfile(instance.Profile))
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

func (m Machine) devicesOf(c Cut) []int {
	if len(c.Devices) > 0 {
		return c.Devices
	}
	all := make([]int, m.GPUs)
	for i := range all {
		all[i] = i
	}
	return all
}

func because(errs []string) string {
	if len(errs) == 0 {
		return ""
	}
	return " (" + strings.Join(errs, "; ") + ")"
}
