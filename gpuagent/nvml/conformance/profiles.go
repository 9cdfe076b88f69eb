// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

var profileCases = []testCase{
	{"profiles are distinct and plausible", []Feature{supportsMIG}, profilesArePlausible},
	{"profiles match the GPU model", []Feature{supportsMIG}, profilesMatchModel},
	{"profiles have the driver's identifiers", []Feature{supportsMIG, Identifiers}, profileIdentifiers},
	{"placements lie within the GPU", []Feature{supportsMIG}, placementsWithinGPU},
	{"an unknown profile is an invalid argument", []Feature{supportsMIG}, unknownProfile},
	{"an empty GPU has room for all of a profile", []Feature{supportsMIG, writable, Capacity}, capacityOfEmptyGPU},
	{"each instance reduces the capacity", []Feature{supportsMIG, writable, Capacity}, capacityDecreases},
}

// describedProfiles returns the profiles, which an older driver knows only in MIG mode.
func (b *fixture) describedProfiles() []nvml.Profile {
	b.Helper()
	if b.readOnly {
		found, err := b.Profiles(b.gpu.UUID)
		b.requireNoError(err)
		if len(found) == 0 {
			b.Skip("skipped: this driver reports no profiles while MIG mode is off")
		}
		return found
	}
	return b.enableMIG()
}

func profileShape(p nvml.Profile) mig.Shape {
	return mig.Shape{Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute}
}

func profilesArePlausible(b *fixture) {
	ids, shapes := map[nvml.ProfileID]bool{}, map[mig.Shape]bool{}
	found := b.describedProfiles()
	for _, p := range found {
		if ids[p.ID] || shapes[profileShape(p)] {
			b.Errorf("there are two of %+v", p)
		}
		ids[p.ID], shapes[profileShape(p)] = true, true
		if p.Compute < 1 || p.Memory < 1 || p.Max < 1 || p.Multiprocessors < p.Compute ||
			p.MemoryMiB < 1024 || p.MemoryMiB > b.gpu.MemoryMiB {
			b.Errorf("not plausible on a GPU of %d MiB: %+v", b.gpu.MemoryMiB, p)
		}
	}
	for _, p := range found {
		for _, q := range found {
			if p.Compute > q.Compute && p.Multiprocessors <= q.Multiprocessors || p.Memory > q.Memory && p.MemoryMiB <= q.MemoryMiB {
				b.Errorf("%+v has more slices than %+v, and less of what is in them", p, q)
			}
		}
	}
}

// profilesMatchModel checks that the GPU has every profile of its model's table. A driver may know
// further ones.
func profilesMatchModel(b *fixture) {
	if b.model == nil {
		b.Skipf("skipped: the GPU model of %s is not in the table", b.gpu.Name)
	}
	found := b.describedProfiles()
	for _, want := range b.model.Profiles {
		at := slices.IndexFunc(found, func(p nvml.Profile) bool { return profileShape(p) == want.Shape })
		if at < 0 {
			b.Errorf("it has no %s", want.Name)
			continue
		}
		if found[at].Max != want.Max {
			b.Errorf("it has room for %d of %s, not %d", want.Max, want.Name, found[at].Max)
		}
		if difference := found[at].MemoryMiB - want.MemoryMiB; difference > 2048 || -difference > want.MemoryMiB/10+1024 {
			b.Errorf("%s has %d MiB, want about %d", want.Name, found[at].MemoryMiB, want.MemoryMiB)
		}
		places, err := b.Placements(b.gpu.UUID, found[at].ID)
		b.requireNoError(err)
		var starts []int
		for _, place := range places {
			starts = append(starts, place.Start)
		}
		slices.Sort(starts)
		b.requireEqual("where "+string(want.Name)+" may begin", starts, want.Starts)
	}
}

func profileIdentifiers(b *fixture) {
	if b.model == nil || b.model.Estimated && b.readOnly {
		b.Skipf("skipped: the identifiers of %s are not published", b.gpu.Name)
	}
	for _, p := range b.describedProfiles() {
		for _, want := range b.model.Profiles {
			if want.Shape == profileShape(p) && want.ID != uint32(p.ID) {
				b.Errorf("%s is profile %d, not %d", want.Name, p.ID, want.ID)
			}
		}
	}
}

func placementsWithinGPU(b *fixture) {
	all := b.allPlacements(b.describedProfiles())
	end := 0
	for _, p := range all {
		end = max(end, p.at.Start+p.at.Size)
	}
	if b.model != nil && end != b.model.Slices {
		b.Errorf("instances may reach slice %d of %d", end, b.model.Slices)
	}
	seen := map[nvml.ProfileID][]int{}
	for _, p := range all {
		if p.at.Start < 0 || p.at.Size != p.profile.Memory || slices.Contains(seen[p.profile.ID], p.at.Start) {
			b.Errorf("%+v may lie at %+v", p.profile, p.at)
		}
		seen[p.profile.ID] = append(seen[p.profile.ID], p.at.Start)
	}
}

const unknownProfileID nvml.ProfileID = 4711

func unknownProfile(b *fixture) {
	b.describedProfiles()
	_, err := b.Placements(b.gpu.UUID, unknownProfileID)
	b.requireError("Placements", err, nvml.ErrInvalidArgument)
	_, err = b.RemainingCapacity(b.gpu.UUID, unknownProfileID)
	b.requireError("RemainingCapacity", err, nvml.ErrInvalidArgument)
	if !b.readOnly {
		_, err = b.CreateInstance(b.gpu.UUID, unknownProfileID, nvml.Placement{Start: 0, Size: 1})
		b.requireError("CreateInstance", err, nvml.ErrInvalidArgument)
	}
}

func capacityOfEmptyGPU(b *fixture) {
	for _, p := range b.enableMIG() {
		left, err := b.RemainingCapacity(b.gpu.UUID, p.ID)
		b.requireNoError(err)
		if left != p.Max {
			b.Errorf("an empty GPU has room for %d of profile %d, of which it can have %d", left, p.ID, p.Max)
		}
	}
}

func capacityDecreases(b *fixture) {
	found := b.enableMIG()
	for _, p := range b.allPlacements(found) {
		made := b.createInstance(p)
		for _, q := range found {
			left, err := b.RemainingCapacity(b.gpu.UUID, q.ID)
			b.requireNoError(err)
			if room := b.remainingPlacements(q, p); left > room {
				b.Errorf("beside profile %d at %d there is room for %d of profile %d, not %d", p.profile.ID, p.at.Start, room, q.ID, left)
			}
		}
		b.destroyInstance(made)
	}
}

// remainingPlacements returns how many instances of a profile fit beside each other and beside an
// instance.
func (b *fixture) remainingPlacements(profile nvml.Profile, beside placedProfile) int {
	b.Helper()
	room, free := 0, 0
	for _, q := range b.allPlacements([]nvml.Profile{profile}) {
		if !q.overlaps(beside) && q.at.Start >= free {
			room, free = room+1, q.at.Start+q.at.Size
		}
	}
	if profile.ID == beside.profile.ID {
		return min(room, profile.Max-1)
	}
	return min(room, profile.Max)
}
