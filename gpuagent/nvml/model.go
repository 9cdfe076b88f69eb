// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

import "sluice.dev/gpuagent/mig"

// Model returns the GPU's model as its driver describes it: by the profiles, with the names that NVIDIA's
// device plugin computes. Without profiles, as before driver 550 while MIG mode is off, it returns the
// built-in table's, or nil. Equal descriptions are one model.
func (g *GPU) Model(profiles []Profile) *mig.Model {
	described := make([]mig.Profile, 0, len(profiles))
	for _, p := range profiles {
		shape := mig.Shape{Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute}
		described = append(described, mig.Profile{
			Shape: shape, Name: mig.ProfileName(shape, p.MemoryMiB, g.MemoryMiB), ID: uint32(p.ID), MemoryMiB: p.MemoryMiB,
			Starts: p.Starts, Max: p.Max,
		})
	}
	return mig.DescribedModel(g.PCIDevice, g.Name, g.MemoryMiB, described)
}
