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
)

// undo brings back what the change has taken away, and says in the result how far. What
// the driver refuses is given up and the rest goes on.
func (c *change) undo(ctx context.Context, why verdict) Result {
	c.log.Info("undoing the change", "why", why.message)
	board, _ := mig.BoardOf(c.gpu.PCIDevice)
	former := slotsOf(board, c.before.Instances)
	c.tries = tries{}
	var missed, left []slot
	var hopeless []step
	for n := range maxLooks {
		p, err := c.look(ctx)
		var failed *step
		if err == nil {
			left = p.missing(former)
			if n == 0 {
				missed = left
			}
			steps := without(undo(p, former), hopeless)
			if len(steps) == 0 {
				break
			}
			if steps[0].act == setMode {
				hopeless = append(hopeless, steps[0]) // once is enough
			}
			failed, err = c.carryOut(ctx, p, steps)
		}
		stop, over := c.judge(ctx, err)
		switch {
		case over && (failed == nil || !stop.state.final()):
			stop.message = fmt.Sprintf("%s; undoing that: %s", why.message, stop.message)
			return c.result(stop)
		case over:
			hopeless, c.tries = append(hopeless, *failed), tries{}
		}
	}
	r := c.end(c.undone(why, missed, left))
	c.bed.undone = undone{want: c.want.key(), seen: c.seen, until: c.e.now().Add(sickFor), verdict: refuse(r.State, r.Reason, "%s", r.Message)}
	return r
}

// undone is a change that was undone. It is not tried again for a while, unless
// something else is asked for or the GPU is not as it was left: the instances that it
// would destroy once more, and make once more, are somebody's devices.
type undone struct {
	want, seen string
	until      time.Time
	verdict    verdict
}

// failedBefore is what became of the same change the last time.
func (c *change) failedBefore() (verdict, bool) {
	last := &c.bed.undone
	known := !c.called && last.want == c.want.key() && last.seen == c.seen && c.e.now().Before(last.until)
	return last.verdict, known
}

// key is what is asked for, in a form that can be compared.
func (t *target) key() string { return fmt.Sprint(t.layout(), t.mayReset) }

// seen is what matters of the GPU, in such a form, too.
func (p *picture) seen() string {
	var b strings.Builder
	fmt.Fprint(&b, p.current, p.pending)
	for i := range p.instances {
		it := &p.instances[i]
		fmt.Fprintf(&b, " %d:%d@%d:%s:%v", it.id, it.driver, it.start, it.uuid(), p.heldBy(it) != "")
	}
	return b.String()
}

// undone is the result of a change that was undone: of the former instances some were
// missing, and some are still.
func (c *change) undone(why verdict, missed, left []slot) Result {
	r := c.result(why)
	r.NotRestored = placements(left)
	r.Restored = placements(slices.DeleteFunc(slices.Clone(missed), func(s slot) bool { return slices.Contains(left, s) }))
	if len(missed) > 0 && r.State == RolledBack {
		r.Reason = v1alpha1.ReasonRolledBack
	}
	if len(r.Restored) > 0 {
		r.Message += fmt.Sprintf("; there again is what was there before: %v", r.Restored)
	}
	if len(r.NotRestored) > 0 {
		r.Message += fmt.Sprintf("; what was there before could not be made again: %v", r.NotRestored)
	}
	return r
}

func placements(slots []slot) []Placement {
	var found []Placement
	for _, s := range slots {
		found = append(found, s.placement())
	}
	return found
}

// without leaves out the steps that were given up.
func without(steps, hopeless []step) []step {
	return slices.DeleteFunc(steps, func(s step) bool {
		return slices.ContainsFunc(hopeless, func(h step) bool {
			return s.act == h.act && s.slot == h.slot && s.instance.id == h.instance.id
		})
	})
}
