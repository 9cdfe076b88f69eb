// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import "sluice.dev/gpuagent/journal"

// claim marks the instances that are Sluice's own: those in the register, the one on
// which a call had been begun, and those that are exactly what is asked for. All others
// are foreign, and so is one that somebody has divided.
func claim(p *picture, register []journal.Instance, begun *journal.Change, want *target) {
	for i := range p.instances {
		it := &p.instances[i]
		it.ours = it.profile != nil && it.undivided() &&
			(registered(it, register) || begun != nil && touched(it, begun.Next) || want != nil && want.wants(it))
	}
}

// undivided tells that nobody has made compute instances on it that leave room for
// others: what Sluice makes fills its instance.
func (i *instance) undivided() bool {
	return len(i.computes) == 0 || len(i.computes) == 1 && i.computes[0].Slices == i.profile.Compute
}

// registered tells whether the register has this very instance. The UUID of its device
// tells it from a later one with the same identifier at the same place.
func registered(it *instance, register []journal.Instance) bool {
	for _, own := range register {
		if it.entry() == own {
			return true
		}
	}
	return false
}

// touched tells whether the instance is the one on which the call was begun, in one of
// the two states that it has if the call was carried out, or was not.
func touched(it *instance, call journal.Call) bool {
	if it.entry().Placement != call.Instance.Placement {
		return false
	}
	half := len(it.computes) == 0
	switch same := it.id == call.Instance.ID; call.Act {
	case journal.CreateInstance:
		return half
	case journal.CreateCompute:
		return same
	case journal.DestroyCompute:
		return same && (half || it.uuid() == call.Instance.UUID)
	case journal.DestroyInstance:
		return same && half
	default:
		return false
	}
}
