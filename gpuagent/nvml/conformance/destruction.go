// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import "sluice.dev/gpuagent/nvml"

var destruction = []promise{
	{"an instance is not destroyed under its compute instance", []Feature{cutting, changing, Guards}, heldByCompute},
	{"what is destroyed is not found again", []Feature{cutting, changing}, destroyedTwice},
	{"identifiers are good for new instances too", []Feature{cutting, changing}, identifiersAgain},
}

func heldByCompute(b *bench) {
	made, compute := b.device(b.smallest(b.cut()))
	b.refused("DestroyInstance", b.DestroyInstance(b.gpu.UUID, made.ID), nvml.ErrInUse)
	b.layout(made)
	b.must(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
	b.destroy(made)
	b.layout()
}

func destroyedTwice(b *bench) {
	made, compute := b.device(b.smallest(b.cut()))
	b.must(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
	b.refused("DestroyComputeInstance again", b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID), nvml.ErrNotFound)
	b.destroy(made)
	b.refused("DestroyInstance again", b.DestroyInstance(b.gpu.UUID, made.ID), nvml.ErrNotFound)
	b.refused("DestroyComputeInstance", b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID), nvml.ErrNotFound)
	_, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
	b.refused("CreateComputeInstance", err, nvml.ErrNotFound)
	_, err = b.ComputeInstances(b.gpu.UUID, made.ID)
	b.refused("ComputeInstances", err, nvml.ErrNotFound)
	b.layout()
}

// identifiersAgain makes and destroys, so that an implementation which gives identifiers
// again is held to what they name now.
func identifiersAgain(b *bench) {
	all := b.places(b.cut())
	for round := range 3 * len(all) {
		p := all[round%len(all)]
		made, compute := b.device(p)
		b.layout(made)
		found, err := b.ComputeInstances(b.gpu.UUID, made.ID)
		b.must(err)
		b.equal("compute instances", found, []nvml.ComputeInstance{compute})
		b.must(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
		b.destroy(made)
	}
	b.layout()
}
