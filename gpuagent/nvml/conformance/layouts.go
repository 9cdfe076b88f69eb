// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	"sluice.dev/gpuagent/nvml"
)

var layouts = []promise{
	{"an instance can be made at every place, and is read back", []Feature{cutting, changing}, everyPlace},
	{"instances are listed by their first slice", []Feature{cutting, changing}, ordered},
	{"as many as a profile has room for can be made", []Feature{cutting, changing}, full},
	{"one more is refused", []Feature{cutting, changing, Refusals}, oneMore},
	{"what would overlap is refused", []Feature{cutting, changing, Refusals}, overlapping},
	{"what cannot lie there is an invalid argument", []Feature{cutting, changing}, wrongPlace},
	{"other GPUs are left alone", []Feature{cutting, changing}, othersAlone},
}

func everyPlace(b *bench) {
	for _, p := range b.places(b.cut()) {
		made := b.create(p)
		b.layout(made)
		b.destroy(made)
		b.layout()
	}
}

func ordered(b *bench) {
	profiles := b.cut()
	small := b.smallest(profiles).profile
	places := b.places([]nvml.Profile{small})
	slices.Reverse(places) // the last first
	var made []nvml.Instance
	for _, p := range places {
		if len(made) < small.Max {
			made = append(made, b.create(p))
		}
	}
	if len(made) < 2 {
		b.Fatalf("only %d instances of the smallest profile", len(made))
	}
	b.layout(made...)
}

// fill makes all of a profile that there is room for.
func (b *bench) fill(profile nvml.Profile) []nvml.Instance {
	b.Helper()
	var made []nvml.Instance
	free, ids := 0, map[uint32]bool{}
	for _, p := range b.places([]nvml.Profile{profile}) {
		if p.at.Start < free || len(made) == profile.Max {
			continue
		}
		it := b.create(p)
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

func full(b *bench) {
	for _, profile := range b.cut() {
		made := b.fill(profile)
		b.layout(made...)
		for _, it := range made {
			b.destroy(it)
		}
	}
	b.layout()
}

func oneMore(b *bench) {
	for _, profile := range b.cut() {
		made := b.fill(profile)
		for _, p := range b.places([]nvml.Profile{profile}) {
			_, err := b.CreateInstance(b.gpu.UUID, profile.ID, p.at)
			b.refused("one more", err, nvml.ErrInsufficientResources)
		}
		b.layout(made...)
		for _, it := range made {
			b.destroy(it)
		}
	}
}

func overlapping(b *bench) {
	all := b.places(b.cut())
	for _, p := range all {
		made := b.create(p)
		for _, q := range all {
			if q.overlaps(p) {
				_, err := b.CreateInstance(b.gpu.UUID, q.profile.ID, q.at)
				b.refused("over another", err, nvml.ErrInsufficientResources)
			}
		}
		b.layout(made)
		b.destroy(made)
	}
}

func wrongPlace(b *bench) {
	for _, p := range b.cut() {
		var starts []int
		for _, place := range b.places([]nvml.Profile{p}) {
			starts = append(starts, place.at.Start)
		}
		for start := -1; start <= 8; start++ {
			for size := range 9 {
				if size == p.Memory && slices.Contains(starts, start) {
					continue
				}
				_, err := b.CreateInstance(b.gpu.UUID, p.ID, nvml.Placement{Start: start, Size: size})
				b.refused("where it cannot lie", err, nvml.ErrInvalidArgument)
			}
		}
	}
	b.layout()
}

func othersAlone(b *bench) {
	if len(b.gpus) < 2 {
		b.Skip("left out: the node has one GPU")
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
	b.device(b.smallest(b.cut()))
	b.equal("the other GPUs", read(), before)
}
