// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"

	"sluice.dev/gpuagent/nvml"
)

var computing = []promise{
	{"every profile has a compute instance that fills it", []Feature{cutting, changing}, everyCompute},
	{"a filled instance has no room for another", []Feature{cutting, changing, Refusals}, secondCompute},
	{"devices have UUIDs of their own", []Feature{cutting, changing}, ownUUIDs},
	{"a UUID is not given again", []Feature{cutting, changing, FreshUUIDs}, freshUUIDs},
}

func everyCompute(b *bench) {
	for _, p := range b.places(b.cut()) {
		made := b.create(p)
		none, err := b.ComputeInstances(b.gpu.UUID, made.ID)
		b.must(err)
		if len(none) != 0 {
			b.Errorf("a new instance has the compute instances %+v", none)
		}
		compute, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
		b.must(err)
		if !strings.HasPrefix(compute.UUID, "MIG-") {
			b.Errorf("the device has the UUID %q", compute.UUID)
		}
		if compute.Slices != p.profile.Compute {
			b.Errorf("the compute instance has %d slices, of %d", compute.Slices, p.profile.Compute)
		}
		found, err := b.ComputeInstances(b.gpu.UUID, made.ID)
		b.must(err)
		b.equal("compute instances", found, []nvml.ComputeInstance{compute})
		b.must(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
		b.destroy(made)
	}
}

func secondCompute(b *bench) {
	made, compute := b.device(b.smallest(b.cut()))
	_, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
	b.refused("a second compute instance", err, nvml.ErrInsufficientResources)
	found, err := b.ComputeInstances(b.gpu.UUID, made.ID)
	b.must(err)
	b.equal("compute instances", found, []nvml.ComputeInstance{compute})
}

func ownUUIDs(b *bench) {
	profiles := b.cut()
	seen := map[string]uint32{}
	for _, made := range b.fill(b.smallest(profiles).profile) {
		compute, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
		b.must(err)
		if other, twice := seen[compute.UUID]; twice {
			b.Errorf("instances %d and %d both have %s", other, made.ID, compute.UUID)
		}
		seen[compute.UUID] = made.ID
	}
	for _, made := range b.instances() {
		found, err := b.ComputeInstances(b.gpu.UUID, made.ID)
		b.must(err)
		if len(found) != 1 || seen[found[0].UUID] != made.ID {
			b.Errorf("instance %d has %+v", made.ID, found)
		}
	}
}

func freshUUIDs(b *bench) {
	small := b.smallest(b.cut())
	seen := map[string]bool{}
	for range 20 {
		made, compute := b.device(small)
		if seen[compute.UUID] {
			b.Errorf("%s was the UUID of a device that is gone", compute.UUID)
		}
		seen[compute.UUID] = true
		b.must(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
		b.destroy(made)
	}
}
