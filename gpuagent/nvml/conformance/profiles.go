// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

var profiles = []promise{
	{"profiles are told apart, and plausible", []Feature{cutting}, plausible},
	{"profiles are those of the board", []Feature{cutting}, boards},
	{"profiles have the driver's identifiers", []Feature{cutting, Identifiers}, identifiers},
	{"instances may lie within the board", []Feature{cutting}, within},
	{"a profile that is not there is an invalid argument", []Feature{cutting}, unknownProfile},
	{"an empty GPU has room for all of a profile", []Feature{cutting, changing, Capacity}, emptyCapacity},
	{"each instance takes room away", []Feature{cutting, changing, Capacity}, capacityFalls},
}

// described are the profiles, which an older driver knows in MIG mode alone.
func (b *bench) described() []nvml.Profile {
	b.Helper()
	if b.readOnly {
		found, err := b.Profiles(b.gpu.UUID)
		b.must(err)
		if len(found) == 0 {
			b.Skip("left out: this driver knows no profiles while MIG mode is off")
		}
		return found
	}
	return b.cut()
}

func shape(p nvml.Profile) mig.Shape {
	return mig.Shape{Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute}
}

func plausible(b *bench) {
	ids, shapes := map[nvml.ProfileID]bool{}, map[mig.Shape]bool{}
	found := b.described()
	for _, p := range found {
		if ids[p.ID] || shapes[shape(p)] {
			b.Errorf("there are two of %+v", p)
		}
		ids[p.ID], shapes[shape(p)] = true, true
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

// boards compares with the table: every profile of the table is there, and as it says.
// A driver may know further ones.
func boards(b *bench) {
	if b.board == nil {
		b.Skipf("left out: the board of %s is not in the table", b.gpu.Name)
	}
	found := b.described()
	for _, want := range b.board.Profiles {
		at := slices.IndexFunc(found, func(p nvml.Profile) bool { return shape(p) == want.Shape })
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
		b.must(err)
		var starts []int
		for _, place := range places {
			starts = append(starts, place.Start)
		}
		slices.Sort(starts)
		b.equal("where "+string(want.Name)+" may begin", starts, want.Starts)
	}
}

func identifiers(b *bench) {
	if b.board == nil || b.board.IDsUnpublished && b.readOnly {
		b.Skipf("left out: NVIDIA has not published the identifiers of %s", b.gpu.Name)
	}
	for _, p := range b.described() {
		for _, want := range b.board.Profiles {
			if want.Shape == shape(p) && want.ID != uint32(p.ID) {
				b.Errorf("%s is profile %d, not %d", want.Name, p.ID, want.ID)
			}
		}
	}
}

func within(b *bench) {
	all := b.places(b.described())
	end := 0
	for _, p := range all {
		end = max(end, p.at.Start+p.at.Size)
	}
	if b.board != nil && end != b.board.Slices {
		b.Errorf("instances may reach slice %d of %d", end, b.board.Slices)
	}
	seen := map[nvml.ProfileID][]int{}
	for _, p := range all {
		if p.at.Start < 0 || p.at.Size != p.profile.Memory || slices.Contains(seen[p.profile.ID], p.at.Start) {
			b.Errorf("%+v may lie at %+v", p.profile, p.at)
		}
		seen[p.profile.ID] = append(seen[p.profile.ID], p.at.Start)
	}
}

const noProfile nvml.ProfileID = 4711

func unknownProfile(b *bench) {
	b.described()
	_, err := b.Placements(b.gpu.UUID, noProfile)
	b.refused("Placements", err, nvml.ErrInvalidArgument)
	_, err = b.RemainingCapacity(b.gpu.UUID, noProfile)
	b.refused("RemainingCapacity", err, nvml.ErrInvalidArgument)
	if !b.readOnly {
		_, err = b.CreateInstance(b.gpu.UUID, noProfile, nvml.Placement{Start: 0, Size: 1})
		b.refused("CreateInstance", err, nvml.ErrInvalidArgument)
	}
}

func emptyCapacity(b *bench) {
	for _, p := range b.cut() {
		left, err := b.RemainingCapacity(b.gpu.UUID, p.ID)
		b.must(err)
		if left != p.Max {
			b.Errorf("an empty GPU has room for %d of profile %d, of which it can have %d", left, p.ID, p.Max)
		}
	}
}

func capacityFalls(b *bench) {
	found := b.cut()
	for _, p := range b.places(found) {
		made := b.create(p)
		for _, q := range found {
			left, err := b.RemainingCapacity(b.gpu.UUID, q.ID)
			b.must(err)
			if room := b.room(q, p); left > room {
				b.Errorf("beside profile %d at %d there is room for %d of profile %d, not %d", p.profile.ID, p.at.Start, room, q.ID, left)
			}
		}
		b.destroy(made)
	}
}

// room is how many of a profile lie beside each other, and beside something.
func (b *bench) room(profile nvml.Profile, beside placed) int {
	b.Helper()
	room, free := 0, 0
	for _, q := range b.places([]nvml.Profile{profile}) {
		if !q.overlaps(beside) && q.at.Start >= free {
			room, free = room+1, q.at.Start+q.at.Size
		}
	}
	if profile.ID == beside.profile.ID {
		return min(room, profile.Max-1)
	}
	return min(room, profile.Max)
}
