// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"

	"sluice.dev/gpuagent/nvml"
)

var layoutCases = []testCase{
	{"an instance can be created at every place and read back", []Feature{supportsMIG, writable}, createAtEachPlacement},
	{"instances are listed by their first slice", []Feature{supportsMIG, writable}, instancesAreSorted},
	{"as many instances as fit can be created", []Feature{supportsMIG, writable}, fillWithEachProfile},
	{"one more instance is refused", []Feature{supportsMIG, writable, Refusals}, createBeyondCapacity},
	{"an overlapping instance is refused", []Feature{supportsMIG, writable, Refusals}, createOverlapping},
	{"an impossible place is an invalid argument", []Feature{supportsMIG, writable}, createAtInvalidPlacement},
	{"other GPUs stay unchanged", []Feature{supportsMIG, writable}, otherGPUsUnchanged},
}

func createAtEachPlacement(b *fixture) {
	for _, p := range b.allPlacements(b.enableMIG()) {
		made := b.createInstance(p)
		b.requireLayout(made)
		b.destroyInstance(made)
		b.requireLayout()
	}
}

func instancesAreSorted(b *fixture) {
	profiles := b.enableMIG()
	small := b.smallestPlacement(profiles).profile
	places := b.allPlacements([]nvml.Profile{small})
	slices.Reverse(places) // the last first
	var made []nvml.Instance
	for _, p := range places {
		if len(made) < small.Max {
			made = append(made, b.createInstance(p))
		}
	}
	if len(made) < 2 {
		b.Fatalf("only %d instances of the smallest profile", len(made))
	}
	b.requireLayout(made...)
}

// fillGPU creates all instances of a profile that fit.
func (b *fixture) fillGPU(profile nvml.Profile) []nvml.Instance {
	b.Helper()
	var made []nvml.Instance
	free, ids := 0, map[uint32]bool{}
	for _, p := range b.allPlacements([]nvml.Profile{profile}) {
		if p.at.Start < free || len(made) == profile.Max {
			continue
		}
		it := b.createInstance(p)
		if ids[it.ID] {
			b.Errorf("two instances have the identifier %d", it.ID)
		}
		free, ids[it.ID] = p.at.Start+p.at.Size, true
		made = append(made, it)
	}
	if len(made) != profile.Max {
		b.Errorf("profile %d lies beside itself %d times, not %d", profile.ID, len(made), profile.Max)
	}
	return made
}

func fillWithEachProfile(b *fixture) {
	for _, profile := range b.enableMIG() {
		made := b.fillGPU(profile)
		b.requireLayout(made...)
		for _, it := range made {
			b.destroyInstance(it)
		}
	}
	b.requireLayout()
}

func createBeyondCapacity(b *fixture) {
	for _, profile := range b.enableMIG() {
		made := b.fillGPU(profile)
		for _, p := range b.allPlacements([]nvml.Profile{profile}) {
			_, err := b.CreateInstance(b.gpu.UUID, profile.ID, p.at)
			b.requireError("one more", err, nvml.ErrInsufficientResources)
		}
		b.requireLayout(made...)
		for _, it := range made {
			b.destroyInstance(it)
		}
	}
}

func createOverlapping(b *fixture) {
	all := b.allPlacements(b.enableMIG())
	for _, p := range all {
		made := b.createInstance(p)
		for _, q := range all {
			if q.overlaps(p) {
				_, err := b.CreateInstance(b.gpu.UUID, q.profile.ID, q.at)
				b.requireError("over another", err, nvml.ErrInsufficientResources)
			}
		}
		b.requireLayout(made)
		b.destroyInstance(made)
	}
}

func createAtInvalidPlacement(b *fixture) {
	for _, p := range b.enableMIG() {
		var starts []int
		for _, place := range b.allPlacements([]nvml.Profile{p}) {
			starts = append(starts, place.at.Start)
		}
		for start := -1; start <= 8; start++ {
			for size := range 9 {
				if size == p.Memory && slices.Contains(starts, start) {
					continue
				}
				_, err := b.CreateInstance(b.gpu.UUID, p.ID, nvml.Placement{Start: start, Size: size})
				b.requireError("where it cannot lie", err, nvml.ErrInvalidArgument)
			}
		}
	}
	b.requireLayout()
}

func otherGPUsUnchanged(b *fixture) {
	if len(b.gpus) < 2 {
		b.Skip("skipped: the node has one GPU")
	}
	type state struct {
		Current, Pending nvml.Mode
		Instances        []nvml.Instance
	}
	read := func() map[string]state {
		states := map[string]state{}
		for _, gpu := range b.gpus {
			if gpu.UUID == b.gpu.UUID {
				continue
			}
			current, pending, _ := b.MIGMode(gpu.UUID)
			instances, _ := b.Instances(gpu.UUID)
			states[gpu.UUID] = state{current, pending, instances}
		}
		return states
	}
	before := read()
	b.createDevice(b.smallestPlacement(b.enableMIG()))
	b.requireEqual("the other GPUs", read(), before)
}

var destructionCases = []testCase{
	{"an instance with a compute instance is not destroyed", []Feature{supportsMIG, writable, Guards}, destroyWithComputeInstance},
	{"a destroyed instance is not found", []Feature{supportsMIG, writable}, destroyTwice},
	{"reused identifiers name the new instances", []Feature{supportsMIG, writable}, identifiersAreReused},
}

func destroyWithComputeInstance(b *fixture) {
	made, compute := b.createDevice(b.smallestPlacement(b.enableMIG()))
	b.requireError("DestroyInstance", b.DestroyInstance(b.gpu.UUID, made.ID), nvml.ErrInUse)
	b.requireLayout(made)
	b.requireNoError(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
	b.destroyInstance(made)
	b.requireLayout()
}

func destroyTwice(b *fixture) {
	made, compute := b.createDevice(b.smallestPlacement(b.enableMIG()))
	b.requireNoError(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
	b.requireError("DestroyComputeInstance again", b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID), nvml.ErrNotFound)
	b.destroyInstance(made)
	b.requireError("DestroyInstance again", b.DestroyInstance(b.gpu.UUID, made.ID), nvml.ErrNotFound)
	b.requireError("DestroyComputeInstance", b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID), nvml.ErrNotFound)
	_, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
	b.requireError("CreateComputeInstance", err, nvml.ErrNotFound)
	_, err = b.ComputeInstances(b.gpu.UUID, made.ID)
	b.requireError("ComputeInstances", err, nvml.ErrNotFound)
	b.requireLayout()
}

// identifiersAreReused creates and destroys instances, so that reused identifiers have to name the
// new ones.
func identifiersAreReused(b *fixture) {
	all := b.allPlacements(b.enableMIG())
	for round := range 3 * len(all) {
		p := all[round%len(all)]
		made, compute := b.createDevice(p)
		b.requireLayout(made)
		found, err := b.ComputeInstances(b.gpu.UUID, made.ID)
		b.requireNoError(err)
		b.requireEqual("compute instances", found, []nvml.ComputeInstance{compute})
		b.requireNoError(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
		b.destroyInstance(made)
	}
	b.requireLayout()
}

var computeInstanceCases = []testCase{
	{"every profile has a compute instance that fills it", []Feature{supportsMIG, writable}, computeInstanceForEachPlacement},
	{"a filled instance has no room for another", []Feature{supportsMIG, writable, Refusals}, secondComputeInstance},
	{"devices have UUIDs of their own", []Feature{supportsMIG, writable}, uniqueUUIDs},
	{"a UUID is not reused", []Feature{supportsMIG, writable, FreshUUIDs}, uuidsAreNotReused},
}

func computeInstanceForEachPlacement(b *fixture) {
	for _, p := range b.allPlacements(b.enableMIG()) {
		made := b.createInstance(p)
		none, err := b.ComputeInstances(b.gpu.UUID, made.ID)
		b.requireNoError(err)
		if len(none) != 0 {
			b.Errorf("a new instance has the compute instances %+v", none)
		}
		compute, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
		b.requireNoError(err)
		if !strings.HasPrefix(compute.UUID, "MIG-") {
			b.Errorf("the device has the UUID %q", compute.UUID)
		}
		if compute.Slices != p.profile.Compute {
			b.Errorf("the compute instance has %d slices, of %d", compute.Slices, p.profile.Compute)
		}
		found, err := b.ComputeInstances(b.gpu.UUID, made.ID)
		b.requireNoError(err)
		b.requireEqual("compute instances", found, []nvml.ComputeInstance{compute})
		b.requireNoError(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
		b.destroyInstance(made)
	}
}

func secondComputeInstance(b *fixture) {
	made, compute := b.createDevice(b.smallestPlacement(b.enableMIG()))
	_, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
	b.requireError("a second compute instance", err, nvml.ErrInsufficientResources)
	found, err := b.ComputeInstances(b.gpu.UUID, made.ID)
	b.requireNoError(err)
	b.requireEqual("compute instances", found, []nvml.ComputeInstance{compute})
}

func uniqueUUIDs(b *fixture) {
	profiles := b.enableMIG()
	seen := map[string]uint32{}
	for _, made := range b.fillGPU(b.smallestPlacement(profiles).profile) {
		compute, err := b.CreateComputeInstance(b.gpu.UUID, made.ID)
		b.requireNoError(err)
		if other, twice := seen[compute.UUID]; twice {
			b.Errorf("instances %d and %d both have %s", other, made.ID, compute.UUID)
		}
		seen[compute.UUID] = made.ID
	}
	for _, made := range b.listInstances() {
		found, err := b.ComputeInstances(b.gpu.UUID, made.ID)
		b.requireNoError(err)
		if len(found) != 1 || seen[found[0].UUID] != made.ID {
			b.Errorf("instance %d has %+v", made.ID, found)
		}
	}
}

func uuidsAreNotReused(b *fixture) {
	small := b.smallestPlacement(b.enableMIG())
	seen := map[string]bool{}
	for range 20 {
		made, compute := b.createDevice(small)
		if seen[compute.UUID] {
			b.Errorf("%s was the UUID of a device that is gone", compute.UUID)
		}
		seen[compute.UUID] = true
		b.requireNoError(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
		b.destroyInstance(made)
	}
}
