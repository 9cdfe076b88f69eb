// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

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
		config.GPUs = append(config.GPUs, simulator.GPU{Board: m.Board, UUID: GPUID(node, i)})
	}
	for _, c := range m.MIG {
		for _, gpu := range m.devicesOf(c) {
			config.GPUs[gpu].Mode = nvml.Enabled
		}
	}
	return config
}

// Cut cuts the GPUs of a new machine as it says.
func (m Machine) Cut(node string, driver nvml.Library) error {
	board, _ := mig.BoardNamed(m.Board)
	for _, c := range m.MIG {
		for _, index := range m.devicesOf(c) {
			for _, instance := range c.Instances {
				profile, err := board.Named(v1alpha1.MIGProfile(instance.Profile))
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
