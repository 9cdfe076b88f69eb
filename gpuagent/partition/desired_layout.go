// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// desiredLayout is the desired layout of one GPU.
type desiredLayout struct {
	migEnabled bool
	mayReset   bool
	slots      []slot
	// infeasible is why the GPU model does not support the layout.
	infeasible error
	// modeRequested reports whether the driver accepted the mode already, resetDone whether the GPU
	// was reset for it.
	modeRequested, resetDone bool
}

// errUnknownModel reports a GPU whose profiles neither the driver nor the built-in table has.
var errUnknownModel = errors.New("the driver reports no MIG profiles of the GPU and Sluice does not know the GPU model, so the GPU " +
	"stays as it is; enable MIG mode, or install driver 550 or later")

// resolveLayout finds the GPU model's profiles by shape and checks whether the layout is feasible.
func resolveLayout(model *mig.Model, want v1alpha1.DesiredGPU) desiredLayout {
	var t desiredLayout
	t.resolve(model, want)
	return t
}

// resolve is resolveLayout for a change in progress, whose model may become known with MIG mode.
func (t *desiredLayout) resolve(model *mig.Model, want v1alpha1.DesiredGPU) {
	t.migEnabled, t.mayReset = want.MIGEnabled, want.MayReset
	if t.slots, t.infeasible = resolveSlots(model, want); t.infeasible != nil {
		t.slots = nil // An infeasible layout adopts no instances.
	}
}

// resolveSlots returns the desired slots by start. Its errors are for the author of the layout.
func resolveSlots(model *mig.Model, want v1alpha1.DesiredGPU) ([]slot, error) {
	switch {
	case !want.MIGEnabled && len(want.Instances) > 0:
		return nil, errors.New("instances are requested without MIG mode; set migEnabled or remove them")
	case !want.MIGEnabled:
		return nil, nil
	case model == nil:
		return nil, errUnknownModel
	}
	var found []slot
	check := mig.GPU{Model: model}
	for _, it := range want.Instances {
		profile, err := model.Profile(it.Profile)
		if err != nil {
			return nil, err
		}
		found = append(found, slot{profile, int(it.Start)})
		check.Instances = append(check.Instances, mig.Instance{Profile: profile, Start: int(it.Start)})
	}
	slices.SortFunc(found, func(a, b slot) int { return cmp.Compare(a.start, b.start) })
	return found, check.Check()
}

// layout returns the layout in the journal's form.
func (t *desiredLayout) layout() Layout {
	l := Layout{MIG: t.migEnabled}
	for _, s := range t.slots {
		l.Instances = append(l.Instances, s.placement())
	}
	return l
}

func (t *desiredLayout) contains(i *instance) bool {
	return slices.ContainsFunc(t.slots, func(s slot) bool { return s.matches(i) })
}

// toDesiredGPU returns a layout of the journal as a desired GPU.
func toDesiredGPU(gpu string, l Layout) v1alpha1.DesiredGPU {
	d := v1alpha1.DesiredGPU{UUID: v1alpha1.GPUUUID(gpu), MIGEnabled: l.MIG}
	for _, p := range l.Instances {
		d.Instances = append(d.Instances, v1alpha1.DesiredInstance{Profile: p.Profile, Start: int32(p.Start)})
	}
	return d
}

// slotsOfPlacements returns the slots of a journal's placements that the GPU model supports.
func slotsOfPlacements(model *mig.Model, placements []Placement) []slot {
	if model == nil {
		return nil
	}
	var found []slot
	for _, p := range placements {
		if profile, err := model.Profile(p.Profile); err == nil && slices.Contains(profile.Starts, p.Start) {
			found = append(found, slot{profile, p.Start})
		}
	}
	return found
}

// checkForeign returns an error if a foreign instance prevents the layout.
func (t *desiredLayout) checkForeign(p *observedGPU) error {
	for _, s := range t.slots {
		others := 0
		for i := range p.instances {
			it := &p.instances[i]
			if it.owned {
				continue
			}
			if it.mask()&s.mask() != 0 {
				return fmt.Errorf("%s@%d overlaps %s, which is not Sluice's and stays", s.profile.Name, s.start, it.displayName())
			}
			if it.profile == s.profile {
				others++
			} else if it.profile != nil && it.profile.Excludes(s.profile) {
				return fmt.Errorf("%s is not Sluice's and has media engines that %s needs; a GPU has one set", it.displayName(), s.profile.Name)
			}
		}
		if others == 0 {
			continue
		}
		for _, other := range t.slots {
			if other.profile == s.profile {
				others++
			}
		}
		if others > s.profile.Max {
			return fmt.Errorf("%d instances of %s, counting those that are not Sluice's; %s has at most %d", others, s.profile.Name,
				p.model.Name, s.profile.Max)
		}
	}
	return nil
}
