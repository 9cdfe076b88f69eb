// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"fmt"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// observedGPU is a GPU at one moment.
type observedGPU struct {
	gpu nvml.GPU
	// model is the model as the driver describes it, or the built-in table's; nil if both are unknown.
	model *mig.Model
	// migCapable reports whether the GPU has a MIG mode.
	migCapable       bool
	current, pending nvml.Mode
	// profiles are the driver's profiles; before driver 550 empty while MIG mode is off.
	profiles  []nvml.Profile
	instances []instance
	processes []nvml.Process
	// wholeHolder holds the GPU itself and not one of its instances.
	wholeHolder *Holder
	// holdersUnknown is why the holders are unknown; then everything counts as in use.
	// processesUnknown is separate: no pod can be given an instance without a device, so only
	// processes could use it.
	holdersUnknown, processesUnknown error
}

// instance is a GPU instance at one moment.
type instance struct {
	// id and driverProfile are the driver's identifiers.
	id            uint32
	driverProfile nvml.ProfileID
	// profile is nil if the GPU model lacks it.
	profile     *mig.Profile
	start, size int
	computes    []nvml.ComputeInstance
	// owned reports whether Sluice may destroy the instance once it is unused.
	owned  bool
	holder *Holder
}

// uuid returns the UUID of its MIG device; "" if it has none or several.
func (i *instance) uuid() string {
	if len(i.computes) == 1 {
		return i.computes[0].UUID
	}
	return ""
}

// displayName returns its name for messages.
func (i *instance) displayName() string {
	if i.profile == nil {
		return fmt.Sprintf("instance %d of an unknown profile at %d", i.id, i.start)
	}
	if uuid := i.uuid(); uuid != "" {
		return fmt.Sprintf("%s@%d (%s)", i.profile.Name, i.start, uuid)
	}
	return fmt.Sprintf("%s@%d (without a device)", i.profile.Name, i.start)
}

// mask returns its memory slices.
func (i *instance) mask() mig.Mask { return mig.MaskOf(i.start, i.size) }

// isSame reports whether other is still the same instance. The driver reuses identifiers.
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

// instanceAt returns the instance in a slot, or nil.
func (p *observedGPU) instanceAt(s slot) *instance {
	for i := range p.instances {
		if s.matches(&p.instances[i]) {
			return &p.instances[i]
		}
	}
	return nil
}

// layout returns the layout of Sluice's own complete instances.
func (p *observedGPU) layout() Layout {
	l := Layout{MIG: bool(p.current)}
	for i := range p.instances {
		if it := &p.instances[i]; it.owned && len(it.computes) > 0 {
			l.Instances = append(l.Instances, slot{it.profile, it.start}.placement())
		}
	}
	return l
}

// ownedInstances returns Sluice's own instances, incomplete ones too. A registered instance whose
// profile is unreadable now stays registered: otherwise it would be foreign forever.
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

// driverProfile returns the driver's description of a profile.
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

// modelProfile returns the GPU model's profile for a driver's identifier; nil if it lacks the
// shape.
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

// markOwned marks Sluice's own instances: registered ones, the target of an unfinished call, and
// those that match the desired layout. All others are foreign, as is an instance that another
// program divided.
func markOwned(p *observedGPU, register []OwnedInstance, pending *PendingChange, want *desiredLayout) {
	for i := range p.instances {
		it := &p.instances[i]
		it.owned = it.profile != nil && it.isUndivided() &&
			(isRegistered(it, register) || pending != nil && isCallTarget(it, pending.Next) || want != nil && want.contains(it))
	}
}

// isUndivided reports whether the compute instance fills the instance, as Sluice's own do.
func (i *instance) isUndivided() bool {
	return len(i.computes) == 0 || len(i.computes) == 1 && i.computes[0].Slices == i.profile.Compute
}

// isRegistered reports whether the register lists this very instance. The UUID of its device
// distinguishes it from a later one with the same identifier at the same place.
func isRegistered(it *instance, register []OwnedInstance) bool {
	for _, own := range register {
		if it.ownedInstance() == own {
			return true
		}
	}
	return false
}

// isCallTarget reports whether the instance is the target of a call that was begun, carried out or
// not.
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
