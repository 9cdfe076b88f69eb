// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"fmt"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// observedGPU is one GPU as it is at one moment.
type observedGPU struct {
	gpu nvml.GPU
	// model is what can be cut from it; nil where it is not known.
	model *mig.Model
	// migCapable is whether it has a MIG mode at all.
	migCapable       bool
	current, pending nvml.Mode
	// profiles are the driver's; empty where MIG mode is off.
	profiles  []nvml.Profile
	instances []instance
	// wholeHolder is who has the GPU itself, not one of its instances.
	wholeHolder *Holder
	// holdersUnknown is why nobody can tell who has what; everything is in use then. Of
	// processes it is told apart: an instance without a device can be given to nobody, so
	// only they could be on it.
	holdersUnknown, processesUnknown error
}

// instance is a GPU instance as it is.
type instance struct {
	// id is the driver's identifier, driver what it calls the profile.
	id            uint32
	driverProfile nvml.ProfileID
	// profile is its profile; nil where the board's table has none such.
	profile     *mig.Profile
	start, size int
	computes    []nvml.ComputeInstance
	// owned tells that Sluice may destroy it once nobody has it.
	owned  bool
	holder *Holder
}

// uuid is its MIG device; "" where it has none, or several.
func (i *instance) uuid() string {
	if len(i.computes) == 1 {
		return i.computes[0].UUID
	}
	return ""
}

// displayName is how messages call it.
func (i *instance) displayName() string {
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

// isSame tells whether that is still the instance that it was: identifiers are given
// again to others.
func (i *instance) isSame(other *instance) bool {
	return i.id == other.id && i.profile == other.profile && i.start == other.start &&
		len(i.computes) == len(other.computes) && i.uuid() == other.uuid()
}

// slot is a place for an instance of a profile.
type slot struct {
	profile *mig.Profile
	start   int
}

func (s slot) mask() mig.Mask { return s.profile.Mask(s.start) }

func (s slot) matches(i *instance) bool { return i.profile == s.profile && i.start == s.start }

func (s slot) placement() Placement {
	return Placement{Profile: s.profile.Name, Start: s.start}
}

// instanceAt is the instance in that slot; nil where there is none.
func (p *observedGPU) instanceAt(s slot) *instance {
	for i := range p.instances {
		if s.matches(&p.instances[i]) {
			return &p.instances[i]
		}
	}
	return nil
}

// layout is how Sluice has cut the GPU: what it made in full, of its own.
func (p *observedGPU) layout() Layout {
	l := Layout{MIG: bool(p.current)}
	for i := range p.instances {
		if it := &p.instances[i]; it.owned && len(it.computes) > 0 {
			l.Instances = append(l.Instances, slot{it.profile, it.start}.placement())
		}
	}
	return l
}

// ownedInstances are Sluice's own instances, half-made ones, too. One that is known and there,
// but of a profile that cannot be told now, stays known: it would be foreign for ever.
func (p *observedGPU) ownedInstances(known []OwnedInstance) []OwnedInstance {
	var own []OwnedInstance
	for i := range p.instances {
		it := &p.instances[i]
		if it.owned {
			own = append(own, it.ownedInstance())
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

func (i *instance) ownedInstance() OwnedInstance {
	return OwnedInstance{Placement: slot{i.profile, i.start}.placement(), ID: i.id, UUID: i.uuid()}
}

// driverProfile is the driver's own words for a profile.
func (p *observedGPU) driverProfile(profile *mig.Profile) (nvml.Profile, bool) {
	for _, d := range p.profiles {
		if profileShape(d) == profile.Shape {
			return d, true
		}
	}
	return nvml.Profile{}, false
}

func profileShape(d nvml.Profile) mig.Shape {
	return mig.Shape{Compute: d.Compute, Memory: d.Memory, Attribute: d.Attribute}
}

// modelProfile is the board's profile with the driver's identifier; nil where the board's
// table has none of its shape.
func (p *observedGPU) modelProfile(id nvml.ProfileID) *mig.Profile {
	if p.model == nil {
		return nil
	}
	for _, d := range p.profiles {
		if d.ID != id {
			continue
		}
		for i := range p.model.Profiles {
			if p.model.Profiles[i].Shape == profileShape(d) {
				return &p.model.Profiles[i]
			}
		}
	}
	return nil
}

// markOwned marks the instances that are Sluice's own: those in the register, the one on
// which a call had been begun, and those that are exactly what is asked for. All others
// are foreign, and so is one that somebody has divided.
func markOwned(p *observedGPU, register []OwnedInstance, begun *PendingChange, want *desiredLayout) {
	for i := range p.instances {
		it := &p.instances[i]
		it.owned = it.profile != nil && it.isUndivided() &&
			(isRegistered(it, register) || begun != nil && isCallTarget(it, begun.Next) || want != nil && want.contains(it))
	}
}

// isUndivided tells that nobody has made compute instances on it that leave room for
// others: what Sluice makes fills its instance.
func (i *instance) isUndivided() bool {
	return len(i.computes) == 0 || len(i.computes) == 1 && i.computes[0].Slices == i.profile.Compute
}

// isRegistered tells whether the register has this very instance. The UUID of its device
// tells it from a later one with the same identifier at the same place.
func isRegistered(it *instance, register []OwnedInstance) bool {
	for _, own := range register {
		if it.ownedInstance() == own {
			return true
		}
	}
	return false
}

// isCallTarget tells whether the instance is the one on which the call was begun, in one of
// the two states that it has if the call was carried out, or was not.
func isCallTarget(it *instance, call Call) bool {
	if it.ownedInstance().Placement != call.Instance.Placement {
		return false
	}
	half := len(it.computes) == 0
	switch same := it.id == call.Instance.ID; call.Operation {
	case OpCreateInstance:
		return half
	case OpCreateComputeInstance:
		return same
	case OpDestroyComputeInstance:
		return same && (half || it.uuid() == call.Instance.UUID)
	case OpDestroyInstance:
		return same && half
	default:
		return false
	}
}
