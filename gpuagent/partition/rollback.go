// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// rollback restores the instances that the change destroyed and adds to the result which ones. It
// gives up what the driver refuses and continues with the rest.
func (c *gpuChange) rollback(ctx context.Context, why decision) Result {
	c.log.Info("Rolling back change", "reason", why.message)
	c.retries = retryCounts{}
	var missed, left []slot
	var hopeless []step
	for n := range maxIterations {
		p, err := c.observe(ctx)
		var failed *step
		if err == nil {
			former := slotsOfPlacements(p.model, c.before.Instances)
			left = p.missingSlots(former)
			if n == 0 {
				missed = left
			}
			steps := excludeSteps(planRollback(p, former), hopeless)
			if len(steps) == 0 {
				break
			}
			if steps[0].kind == stepSetMode {
				hopeless = append(hopeless, steps[0]) // One attempt is enough.
			}
			failed, err = c.executeSteps(ctx, p, steps)
		}
		stop, over := c.handleError(ctx, err)
		switch {
		case over && (failed == nil || !stop.state.isFinal()):
			stop.message = fmt.Sprintf("%s; undoing that: %s", why.message, stop.message)
			return c.result(stop)
		case over:
			hopeless, c.retries = append(hopeless, *failed), retryCounts{}
		}
	}
	r := c.closeJournal(c.rollbackResult(why, missed, left))
	backoff := unhealthyBackoff
	if why.gpuInUse && len(missed) == 0 {
		backoff = inUseBackoff
	}
	c.state.lastRollback = rolledBackChange{
		desired: c.desired.fingerprint(), fingerprint: c.fingerprint,
		until: c.engine.now().Add(backoff), decision: refuse(r.State, r.Reason, "%s", r.Message),
	}
	return r
}

// rolledBackChange is a change that was rolled back. It is not repeated for a while, unless the
// desired layout or the GPU changes: repeating it would destroy and recreate devices that pods may
// use.
type rolledBackChange struct {
	desired, fingerprint string
	until                time.Time
	decision             decision
}

// recentRollback returns the result of the same change if it was rolled back recently.
func (c *gpuChange) recentRollback() (decision, bool) {
	last := &c.state.lastRollback
	repeated := !c.driverCalled && last.desired == c.desired.fingerprint() && last.fingerprint == c.fingerprint &&
		c.engine.now().Before(last.until)
	return last.decision, repeated
}

// fingerprint describes the desired layout, for comparison.
func (t *desiredLayout) fingerprint() string { return fmt.Sprint(t.layout(), t.mayReset) }

// fingerprint describes the GPU, for comparison.
func (p *observedGPU) fingerprint() string {
	var b strings.Builder
	fmt.Fprint(&b, p.current, p.pending)
	for i := range p.instances {
		it := &p.instances[i]
		fmt.Fprintf(&b, " %d:%d@%d:%s:%v", it.id, it.driverProfile, it.start, it.uuid(), p.holderOf(it) != "")
	}
	return b.String()
}

// rollbackResult returns the result of a rolled back change, with the former instances that were
// missing before and after.
func (c *gpuChange) rollbackResult(why decision, missed, left []slot) Result {
	r := c.result(why)
	r.NotRestored = toPlacements(left)
	r.Restored = toPlacements(slices.DeleteFunc(slices.Clone(missed), func(s slot) bool { return slices.Contains(left, s) }))
	if len(missed) > 0 && r.State == RolledBack {
		r.Reason = v1alpha1.ReasonRolledBack
	}
	if len(r.Restored) > 0 {
		r.Message += fmt.Sprintf("; restored instances: %v", r.Restored)
	}
	if len(r.NotRestored) > 0 {
		r.Message += fmt.Sprintf("; instances that could not be restored: %v", r.NotRestored)
	}
	return r
}

func toPlacements(slots []slot) []Placement {
	var found []Placement
	for _, s := range slots {
		found = append(found, s.placement())
	}
	return found
}

// excludeSteps returns the steps without those that were given up.
func excludeSteps(steps, hopeless []step) []step {
	return slices.DeleteFunc(steps, func(s step) bool {
		return slices.ContainsFunc(hopeless, func(h step) bool {
			return s.kind == h.kind && s.slot == h.slot && s.instance.id == h.instance.id
		})
	})
}

// planRollback returns the steps that restore the former instances at their places: it destroys
// unused instances of the change and creates missing ones. Unlike decide it does as much as
// possible.
func planRollback(p *observedGPU, former []slot) []step {
	if p.current != nvml.Enabled {
		return nil
	}
	var steps []step
	if p.pending != p.current {
		steps = append(steps, step{kind: stepSetMode, mode: p.current})
	}
	var occupied mig.Mask
	for i := range p.instances {
		it := &p.instances[i]
		wasThere := slices.ContainsFunc(former, func(s slot) bool { return s.matches(it) })
		switch {
		case it.owned && !wasThere && p.holderOf(it) == "":
			steps = append(steps, step{kind: stepDestroy, instance: *it})
			continue
		case it.owned && len(it.computes) == 0 && wasThere:
			steps = append(steps, step{kind: stepComplete, instance: *it})
		}
		occupied |= it.mask()
	}
	for _, s := range former {
		if _, known := p.driverProfile(s.profile); known && s.mask()&occupied == 0 {
			steps = append(steps, step{kind: stepCreate, slot: s})
			occupied |= s.mask()
		}
	}
	return steps
}

// missingSlots returns the slots without a complete instance.
func (p *observedGPU) missingSlots(slots []slot) []slot {
	return slices.DeleteFunc(slices.Clone(slots), func(s slot) bool {
		it := p.instanceAt(s)
		return it != nil && len(it.computes) > 0
	})
}
