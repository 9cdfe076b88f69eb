// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// act is a step of a change.
type act uint8

const (
	// destroy takes an instance away with its compute instance.
	destroy act = iota
	// complete gives a half-made instance its compute instance.
	complete
	// create makes an instance with its compute instance.
	create
	// setMode asks for a MIG mode.
	setMode
	// reset resets the GPU.
	reset
)

// step is one of them.
type step struct {
	act      act
	instance instance // destroy, complete
	slot     slot     // create
	mode     nvml.Mode
}

// verdict is what to do: steps, after which one looks again, or where there are none
// what is to be said.
type verdict struct {
	steps   []step
	state   State
	reason  string
	message string
}

func applied() verdict { return verdict{state: Applied, reason: v1alpha1.ReasonApplied} }

func refuse(state State, reason, format string, args ...any) verdict {
	return verdict{state: state, reason: reason, message: fmt.Sprintf(format, args...)}
}

func invalid(err error) verdict { return refuse(Invalid, v1alpha1.ReasonInvalidLayout, "%v", err) }

// decide is the smallest change that leads from what is to what is wanted. It has no
// step where any of what would have to go is in use: a change that could not be
// finished is not begun.
func decide(p *picture, want *target) verdict {
	switch {
	case !p.capable && want.mig:
		return refuse(Invalid, v1alpha1.ReasonInvalidLayout, "%s has no MIG mode; leave it out or set migEnabled to false", p.gpu.Name)
	case want.impossible != nil:
		return invalid(want.impossible)
	case !p.capable:
		return applied()
	case want.mig && p.current == nvml.Enabled:
		return decideLayout(p, want)
	case want.mig:
		return decideEnable(p, want)
	case p.current == nvml.Enabled:
		return decideDisable(p, want)
	case p.pending == nvml.Enabled && !want.asked:
		return whenNobodyHas(p, step{act: setMode, mode: nvml.Disabled})
	default:
		return applied()
	}
}

// decideLayout is about a GPU that is in MIG mode and stays in it.
func decideLayout(p *picture, want *target) verdict {
	if err := want.collides(p); err != nil {
		return invalid(err)
	}
	var steps []step
	var blocked []string
	for i := range p.instances {
		it := &p.instances[i]
		switch {
		case !it.ours:
		case want.wants(it):
			if len(it.computes) == 0 {
				steps = append(steps, step{act: complete, instance: *it})
			}
		default:
			steps = append(steps, step{act: destroy, instance: *it})
			if who := p.heldBy(it); who != "" {
				blocked = append(blocked, fmt.Sprintf("%s has to go and is in use: %s", it.name(), who))
			}
		}
	}
	if len(blocked) > 0 {
		return refuse(Reclaiming, v1alpha1.ReasonInUse, "%s", strings.Join(blocked, "; "))
	}
	for _, s := range want.slots {
		if p.at(s) != nil {
			continue
		}
		if _, known := p.driver(s.profile); !known {
			return refuse(Invalid, v1alpha1.ReasonInvalidLayout, "the driver offers no %s on this GPU; it offers %s", s.profile.Name, p.offers())
		}
		steps = append(steps, step{act: create, slot: s})
	}
	if len(steps) == 0 {
		return applied()
	}
	// First all that goes, so that there is room for what comes.
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.act) - int(b.act) })
	return verdict{steps: steps}
}

// decideEnable is about a GPU that shall be in MIG mode and is not.
func decideEnable(p *picture, want *target) verdict {
	switch {
	case p.pending == nvml.Disabled && want.asked:
		return unmoved
	case p.pending == nvml.Disabled, p.board.ModeAtOnce && !want.asked:
		return whenNobodyHas(p, step{act: setMode, mode: nvml.Enabled})
	case !want.mayReset || want.reset:
		return needsReset("MIG mode is enabled from the GPU's next reset on")
	default:
		return whenNobodyHas(p, step{act: reset})
	}
}

// decideDisable is about a GPU that shall be whole and is in MIG mode. Its instances go
// first; with those that are not Sluice's it stays as it is.
func decideDisable(p *picture, want *target) verdict {
	if p.board == nil {
		return invalid(errUnknownBoard)
	}
	var steps []step
	for i := range p.instances {
		it := &p.instances[i]
		if !it.ours {
			return refuse(Invalid, v1alpha1.ReasonInvalidLayout, "MIG mode cannot be left: %s is not Sluice's and is left alone", it.name())
		}
		steps = append(steps, step{act: destroy, instance: *it})
	}
	pendingOnly := p.pending == nvml.Disabled && (want.asked || !p.board.ModeAtOnce)
	switch {
	case (pendingOnly || !p.board.ModeAtOnce) && (!want.mayReset || want.reset):
		return needsReset("MIG mode is left only at a reset of the GPU")
	case pendingOnly:
		steps = append(steps, step{act: reset})
	case want.asked:
		return unmoved
	default:
		steps = append(steps, step{act: setMode, mode: nvml.Disabled})
	}
	return whenNobodyHas(p, steps...)
}

// unmoved is about a driver that took the request for a mode and did not heed it.
var unmoved = refuse(RolledBack, v1alpha1.ReasonDriverError, "the driver took the request for the other MIG mode, and it is neither in force nor pending")

func needsReset(what string) verdict {
	return refuse(ResetRequired, v1alpha1.ConditionResetRequired,
		"%s: reset it while nobody has it (nvidia-smi --gpu-reset -i <GPU>), restart the node, or allow resets on the node pool (spec.mig.resets)", what)
}

// whenNobodyHas are the steps that need the whole GPU.
func whenNobodyHas(p *picture, steps ...step) verdict {
	if who := p.heldByAnyone(); who != "" {
		return refuse(Reclaiming, v1alpha1.ReasonInUse, "the MIG mode can be changed when nobody has the GPU: %s", who)
	}
	return verdict{steps: steps}
}

// heldBy says who has the instance; "" where it is certain that nobody has.
func (p *picture) heldBy(it *instance) string {
	unknown := p.unknown
	if len(it.computes) == 0 {
		unknown = p.unknownProcesses
	}
	switch {
	case unknown != nil:
		return fmt.Sprintf("who has it cannot be told: %v", unknown)
	case it.holder != nil:
		return it.holder.String()
	case p.whole != nil:
		// Somebody has the GPU, and nobody tells which of its instances that is.
		return fmt.Sprintf("%s, on the GPU as a whole", p.whole)
	default:
		return ""
	}
}

// heldByAnyone says who has the GPU or an instance of it.
func (p *picture) heldByAnyone() string {
	if p.whole != nil {
		return p.whole.String()
	}
	for i := range p.instances {
		if it := &p.instances[i]; it.holder != nil {
			return fmt.Sprintf("%s on %s", it.holder, it.name())
		}
	}
	if p.unknown != nil {
		return fmt.Sprintf("who has it cannot be told: %v", p.unknown)
	}
	return ""
}

func (p *picture) offers() string {
	var names []string
	for _, d := range p.profiles {
		if profile := p.profile(d.ID); profile != nil {
			names = append(names, string(profile.Name))
		}
	}
	return fmt.Sprint(names)
}
