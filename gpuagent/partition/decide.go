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

// stepKind is the kind of a step.
type stepKind uint8

const (
	// stepDestroy destroys an instance with its compute instance.
	stepDestroy stepKind = iota
	// stepComplete creates the compute instance of an incomplete instance.
	stepComplete
	// stepCreate creates an instance with its compute instance.
	stepCreate
	// stepSetMode sets the MIG mode.
	stepSetMode
	// stepReset resets the GPU.
	stepReset
)

// step is one step of a change.
type step struct {
	kind     stepKind
	instance instance // destroy, complete
	slot     slot     // create
	mode     nvml.Mode
}

// decision is a list of steps, after which the GPU is observed again, or without steps the result.
type decision struct {
	steps   []step
	state   State
	reason  string
	message string
	// gpuInUse reports whether the refusal is due to a program that has the GPU open, which the message
	// may lack.
	gpuInUse bool
}

func appliedDecision() decision { return decision{state: Applied, reason: v1alpha1.ReasonApplied} }

func refuse(state State, reason, format string, args ...any) decision {
	return decision{state: state, reason: reason, message: fmt.Sprintf(format, args...)}
}

func invalidLayout(err error) decision {
	return refuse(Invalid, v1alpha1.ReasonInvalidLayout, "%v", err)
}

// decide returns the smallest change that leads to the desired layout. It returns no steps if any
// instance to destroy is in use: a change that cannot be finished is not begun.
func decide(p *observedGPU, want *desiredLayout) decision {
	switch {
	case !p.migCapable && want.migEnabled:
		return refuse(Invalid, v1alpha1.ReasonInvalidLayout,
			"%s does not support MIG; remove it from the spec or set migEnabled to false", p.gpu.Name)
	case want.infeasible != nil:
		return invalidLayout(want.infeasible)
	case !p.migCapable:
		return appliedDecision()
	case want.migEnabled && p.current == nvml.Enabled:
		return decideLayout(p, want)
	case want.migEnabled:
		return decideEnable(p, want)
	case p.current == nvml.Enabled:
		return decideDisable(p, want)
	case p.pending == nvml.Enabled && !want.modeRequested:
		return whenIdle(p, step{kind: stepSetMode, mode: nvml.Disabled})
	default:
		return appliedDecision()
	}
}

// decideLayout decides for a GPU that is in MIG mode and stays in it.
func decideLayout(p *observedGPU, want *desiredLayout) decision {
	if err := want.checkForeign(p); err != nil {
		return invalidLayout(err)
	}
	var steps []step
	var blocked []string
	for i := range p.instances {
		it := &p.instances[i]
		switch {
		case !it.owned:
		case want.contains(it):
			if len(it.computes) == 0 {
				steps = append(steps, step{kind: stepComplete, instance: *it})
			}
		default:
			steps = append(steps, step{kind: stepDestroy, instance: *it})
			if holder := p.holderOf(it); holder != "" {
				blocked = append(blocked, fmt.Sprintf("%s has to be destroyed and is in use: %s", it.displayName(), holder))
			}
		}
	}
	if len(blocked) > 0 {
		return refuse(Reclaiming, v1alpha1.ReasonInUse, "%s", strings.Join(blocked, "; "))
	}
	for _, s := range want.slots {
		if p.instanceAt(s) != nil {
			continue
		}
		if _, known := p.driverProfile(s.profile); !known {
			return refuse(Invalid, v1alpha1.ReasonInvalidLayout, "the driver offers no %s on this GPU; it offers %s", s.profile.Name,
				p.offeredProfiles())
		}
		steps = append(steps, step{kind: stepCreate, slot: s})
	}
	if len(steps) == 0 {
		return appliedDecision()
	}
	// Destroying first makes room for what is created.
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.kind) - int(b.kind) })
	return decision{steps: steps}
}

// decideEnable decides for a GPU that has to enter MIG mode.
func decideEnable(p *observedGPU, want *desiredLayout) decision {
	switch {
	case p.pending == nvml.Disabled && want.modeRequested:
		return modeRequestIgnored
	case p.pending == nvml.Disabled, p.model.ModeWithoutReset && !want.modeRequested:
		return whenIdle(p, step{kind: stepSetMode, mode: nvml.Enabled})
	case !want.mayReset || want.resetDone:
		return resetRequired("MIG mode is enabled only by a reset of the GPU")
	default:
		return whenIdle(p, step{kind: stepReset})
	}
}

// decideDisable decides for a GPU that has to leave MIG mode. Its instances are destroyed first.
// With foreign instances it stays as it is.
func decideDisable(p *observedGPU, want *desiredLayout) decision {
	if p.model == nil {
		return invalidLayout(errUnknownModel)
	}
	var steps []step
	for i := range p.instances {
		it := &p.instances[i]
		if !it.owned {
			return refuse(Invalid, v1alpha1.ReasonInvalidLayout, "MIG mode cannot be disabled: %s is not Sluice's and stays", it.displayName())
		}
		steps = append(steps, step{kind: stepDestroy, instance: *it})
	}
	pendingOnly := p.pending == nvml.Disabled && (want.modeRequested || !p.model.ModeWithoutReset)
	switch {
	case (pendingOnly || !p.model.ModeWithoutReset) && (!want.mayReset || want.resetDone):
		return resetRequired("MIG mode is disabled only by a reset of the GPU")
	case pendingOnly:
		steps = append(steps, step{kind: stepReset})
	case want.modeRequested:
		return modeRequestIgnored
	default:
		steps = append(steps, step{kind: stepSetMode, mode: nvml.Disabled})
	}
	return whenIdle(p, steps...)
}

// modeRequestIgnored is the decision for a driver that accepted a mode and did not set it.
var modeRequestIgnored = refuse(RolledBack, v1alpha1.ReasonDriverError,
	"the driver accepted the MIG mode, which is neither in force nor pending")

func resetRequired(what string) decision {
	return refuse(ResetRequired, v1alpha1.ConditionResetRequired,
		"%s: reset the GPU while it is unused (nvidia-smi --gpu-reset -i <GPU>), reboot the node, "+
			"or allow resets on the node pool (spec.mig.resets)", what)
}

// whenIdle returns steps that need the whole GPU, or a refusal while it is in use.
func whenIdle(p *observedGPU, steps ...step) decision {
	if holder := p.anyHolder(); holder != "" {
		v := refuse(Reclaiming, v1alpha1.ReasonInUse, "the MIG mode changes only on an unused GPU: %s", holder)
		v.gpuInUse = len(p.processes) > 0
		return v
	}
	return decision{steps: steps}
}

// holderOf describes the holder of an instance; "" only if it is certainly unused.
func (p *observedGPU) holderOf(it *instance) string {
	unknown := p.holdersUnknown
	if len(it.computes) == 0 {
		unknown = p.processesUnknown
	}
	switch {
	case unknown != nil:
		return fmt.Sprintf("its holder is unknown: %v", unknown)
	case it.holder != nil:
		return it.holder.String()
	case p.wholeHolder != nil:
		// The GPU is in use, and the driver does not report on which instance.
		return fmt.Sprintf("%s, on the GPU as a whole", p.wholeHolder)
	default:
		return ""
	}
}

// anyHolder describes a holder of the GPU or of an instance.
func (p *observedGPU) anyHolder() string {
	if p.wholeHolder != nil {
		return p.wholeHolder.String()
	}
	for i := range p.instances {
		if it := &p.instances[i]; it.holder != nil {
			return fmt.Sprintf("%s on %s", it.holder, it.displayName())
		}
	}
	if p.holdersUnknown != nil {
		return fmt.Sprintf("its holder is unknown: %v", p.holdersUnknown)
	}
	return ""
}

func (p *observedGPU) offeredProfiles() string {
	var names []string
	for _, d := range p.profiles {
		if profile := p.modelProfile(d.ID); profile != nil {
			names = append(names, string(profile.Name))
		}
	}
	return fmt.Sprint(names)
}
