// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"cmp"
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
)

// announce finds the end that lies ahead and warns of it where that is due.
func (d *deciding) announce() {
	d.Status.Deadline = nil
	if !d.seen.Running || d.stopHolds() {
		return
	}
	runtime, idle := d.announceRuntime(), d.announceIdle()
	if idle != nil && (runtime == nil || idle.At.Before(&runtime.At)) {
		runtime = idle
	}
	d.Status.Deadline = runtime
	d.prune()
}

// manyLeads is how many warnings are kept before those of former limits go; at
// most 64 can be.
const manyLeads = 48

// prune forgets warnings of limits that hold no longer where there are many, but
// for the first that announced an end.
func (d *deciding) prune() {
	if d.Status.Limit == nil || len(d.Status.Leads) < manyLeads {
		return
	}
	limit := d.Status.Limit.InForce.Length()
	first, announced := d.announcedAt(limit)
	d.Status.Leads = slices.DeleteFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool {
		former := l.Reason == v1alpha1.EndMaxRuntime && l.LimitSeconds != seconds(limit)
		return former && (!announced || !l.At.Time.Equal(first))
	})
}

// announceRuntime warns of the end at the limit.
func (d *deciding) announceRuntime() *v1alpha1.ClockDeadline {
	if d.Status.Limit == nil || d.Status.RunningSince == nil {
		return nil
	}
	limit := d.Status.Limit.InForce.Length()
	end := d.now.Add(limit - d.ran())
	ahead, due := d.leads(limit), []time.Duration(nil)
	for _, lead := range ahead {
		switch at := end.Add(-lead); {
		case d.warned(v1alpha1.EndMaxRuntime, lead, limit):
		case at.After(d.now):
			d.at(at)
		default:
			due = append(due, lead)
		}
	}
	first, announced := d.announcedAt(limit)
	if len(due) > 0 && !announced {
		first, announced = d.now, true
	}
	if announced {
		end = later(end, first.Add(d.terms.shortest()))
	}
	for i, lead := range due {
		d.warn(Warning{
			Reason: v1alpha1.EndMaxRuntime, Lead: lead, DueAt: d.now.Add(limit - d.ran() - lead), Deadline: end,
			LimitSeconds: seconds(limit), Superseded: i < len(due)-1,
		})
	}
	deadline := &v1alpha1.ClockDeadline{At: *stamp(end), Reason: v1alpha1.EndMaxRuntime, LimitSeconds: seconds(limit)}
	if announced {
		deadline.AnnouncedAt = stamp(first)
	}
	d.at(end)
	return deadline
}

// leads are those that lie ahead when a workload with a limit begins, longest
// first. Where none does, the shortest is due at the beginning: nothing ends
// unannounced.
func (d *deciding) leads(limit time.Duration) []time.Duration {
	ahead := slices.DeleteFunc(slices.Clone(d.terms.Leads), func(lead time.Duration) bool { return lead >= limit })
	if len(ahead) == 0 {
		return []time.Duration{d.terms.shortest()}
	}
	slices.SortFunc(ahead, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return slices.Compact(ahead)
}

// warned tells whether a warning is in the record, or was just given.
func (d *deciding) warned(reason v1alpha1.EndReason, lead, limit time.Duration) bool {
	return slices.ContainsFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool {
		return l.Reason == reason && l.Lead.Length() == lead && l.LimitSeconds == seconds(limit)
	})
}

// announcedAt is when the end at a limit, or an earlier one, was first announced.
// What was said before an extension was granted counts no longer.
func (d *deciding) announcedAt(limit time.Duration) (first time.Time, ok bool) {
	for _, l := range d.Status.Leads {
		if l.Reason != v1alpha1.EndMaxRuntime || l.LimitSeconds > seconds(limit) || d.extendedSince(l.At.Time) {
			continue
		}
		if !ok || l.At.Time.Before(first) {
			first, ok = l.At.Time, true
		}
	}
	return first, ok
}

func (d *deciding) extendedSince(t time.Time) bool {
	return slices.ContainsFunc(d.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.At.After(t) })
}

// warn gives a warning and records it.
func (d *deciding) warn(w Warning) {
	d.Warnings = append(d.Warnings, w)
	d.Status.Leads = append(d.Status.Leads, v1alpha1.ClockLead{
		Lead: lasting(w.Lead), Reason: w.Reason, LimitSeconds: w.LimitSeconds, At: *stamp(d.now),
	})
}
