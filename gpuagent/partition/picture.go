// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"fmt"

	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// picture is one GPU as it is at one moment.
type picture struct {
	gpu nvml.GPU
	// board is what can be cut from it; nil where it is not known.
	board *mig.Board
	// capable is whether it has a MIG mode at all.
	capable          bool
	current, pending nvml.Mode
	// profiles are the driver's; empty where MIG mode is off.
	profiles  []nvml.Profile
	instances []instance
	// whole is who has the GPU itself, not one of its instances.
	whole *Holder
	// unknown is why nobody can tell who has what; everything is in use then. Of
	// processes it is told apart: an instance without a device can be given to nobody, so
	// only they could be on it.
	unknown, unknownProcesses error
}

// instance is a GPU instance as it is.
type instance struct {
	// id is the driver's identifier, driver what it calls the profile.
	id     uint32
	driver nvml.ProfileID
	// profile is its profile; nil where the board's table has none such.
	profile     *mig.Profile
	start, size int
	computes    []nvml.ComputeInstance
	// ours tells that Sluice may destroy it once nobody has it.
	ours   bool
	holder *Holder
}

// uuid is its MIG device; "" where it has none, or several.
func (i *instance) uuid() string {
	if len(i.computes) == 1 {
		return i.computes[0].UUID
	}
	return ""
}

// name is how messages call it.
func (i *instance) name() string {
	if i.profile == nil {
		return fmt.Sprintf("instance %d of an unknown profile at %d", i.id, i.start)
	}
	if uuid := i.uuid(); uuid != "" {
		return fmt.Sprintf("%s@%d (%s)", i.profile.Name, i.start, uuid)
	}
	return fmt.Sprintf("%s@%d (without a device)", i.profile.Name, i.start)
}

// mask are its memory slices.
func (i *instance) mask() mig.Mask { return mig.MaskOf(i.start, i.size) }

// same tells whether that is still the instance that it was: identifiers are given
// again to others.
func (i *instance) same(other *instance) bool {
	return i.id == other.id && i.profile == other.profile && i.start == other.start &&
		len(i.computes) == len(other.computes) && i.uuid() == other.uuid()
}

// slot is a place for an instance of a profile.
type slot struct {
	profile *mig.Profile
	start   int
}

func (s slot) mask() mig.Mask { return s.profile.Mask(s.start) }

func (s slot) holds(i *instance) bool { return i.profile == s.profile && i.start == s.start }

func (s slot) placement() Placement { return Placement{Profile: s.profile.Name, Start: s.start} }

// at is the instance in that slot; nil where there is none.
func (p *picture) at(s slot) *instance {
	for i := range p.instances {
		if s.holds(&p.instances[i]) {
			return &p.instances[i]
		}
	}
	return nil
}

// layout is how Sluice has cut the GPU: what it made in full, of its own.
func (p *picture) layout() journal.Layout {
	l := journal.Layout{MIG: bool(p.current)}
	for i := range p.instances {
		if it := &p.instances[i]; it.ours && len(it.computes) > 0 {
			l.Instances = append(l.Instances, slot{it.profile, it.start}.placement())
		}
	}
	return l
}

// register are Sluice's own instances, half-made ones, too. One that is known and there,
// but of a profile that cannot be told now, stays known: it would be foreign for ever.
func (p *picture) register(known []journal.Instance) []journal.Instance {
	var own []journal.Instance
	for i := range p.instances {
		it := &p.instances[i]
		if it.ours {
			own = append(own, it.entry())
			continue
		}
		for _, k := range known {
			if k.ID == it.id && k.Start == it.start && k.UUID == it.uuid() {
				own = append(own, k)
			}
		}
	}
	return own
}

func (i *instance) entry() journal.Instance {
	return journal.Instance{Placement: slot{i.profile, i.start}.placement(), ID: i.id, UUID: i.uuid()}
}

// driver is the driver's own words for a profile.
func (p *picture) driver(profile *mig.Profile) (nvml.Profile, bool) {
	for _, d := range p.profiles {
		if shape(d) == profile.Shape {
			return d, true
		}
	}
	return nvml.Profile{}, false
}

func shape(d nvml.Profile) mig.Shape {
	return mig.Shape{Compute: d.Compute, Memory: d.Memory, Attribute: d.Attribute}
}

// profile is the board's profile with the driver's identifier; nil where the board's
// table has none of its shape.
func (p *picture) profile(id nvml.ProfileID) *mig.Profile {
	if p.board == nil {
		return nil
	}
	for _, d := range p.profiles {
		if d.ID != id {
			continue
		}
		for i := range p.board.Profiles {
			if p.board.Profiles[i].Shape == shape(d) {
				return &p.board.Profiles[i]
			}
		}
	}
	return nil
}
