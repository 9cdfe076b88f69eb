// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"cmp"
	"slices"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// determineLimit finds how long the workload may run. A limit that is cut, or comes, while
// the workload runs leaves the longest lead, or what was left if that is less.
func (d *decision) determineLimit() {
	had, now := d.Status.Limit, d.limits.MaxRuntime
	if !d.limits.hasRuntimeLimit() {
		d.Status.Limit = nil
		return
	}
	// What the pods asked for is known only while there are some.
	if had != nil && !d.observed.Running {
		return
	}
	whole := now.Length() + d.totalExtension()
	inForce := d.preferConfigured(now, whole)
	switch {
	case d.isStarting():
	case had == nil:
		inForce = d.atLeast(inForce, d.runningTime()+d.limits.longestLead())
	case had.Configured.Equal(now):
		return
	default:
		inForce = d.atLeast(inForce, min(d.runningTime()+d.limits.longestLead(), had.InForce.Length()))
	}
	d.Status.Limit = &v1alpha1.ClockLimit{Configured: now, InForce: inForce}
}

// isStarting tells whether the workload's time only begins with this decision.
func (d *decision) isStarting() bool {
	return d.Status.AccumulatedSeconds == 0 && (d.Status.RunningSince == nil || d.intervalOpened)
}

// preferConfigured is a length in the words of a duration that is as long, where it is.
func (d *decision) preferConfigured(duration period.Duration, length time.Duration) period.Duration {
	if duration.Length() == length {
		return duration
	}
	return toDuration(length)
}

func (d *decision) atLeast(duration period.Duration, length time.Duration) period.Duration {
	if duration.Length() >= length {
		return duration
	}
	return toDuration(length)
}

// announceDeadlines finds the end that lies ahead and warns of it where that is due.
func (d *decision) announceDeadlines() {
	d.Status.Deadline = nil
	if !d.observed.Running || d.isStopInForce() {
		return
	}
	runtime, idle := d.announceRuntimeLimit(), d.announceIdleTimeout()
	if idle != nil && (runtime == nil || idle.At.Before(&runtime.At)) {
		runtime = idle
	}
	d.Status.Deadline = runtime
	d.pruneLeads()
}

// leadPruneThreshold is how many warnings are kept before those of former limits go; at
// most 64 can be.
const leadPruneThreshold = 48

// pruneLeads forgets warnings of limits that hold no longer where there are many, but
// for the first that announced an end.
func (d *decision) pruneLeads() {
	if d.Status.Limit == nil || len(d.Status.Leads) < leadPruneThreshold {
		return
	}
	limit := d.Status.Limit.InForce.Length()
	first, announced := d.firstAnnouncedAt(limit)
	d.Status.Leads = slices.DeleteFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool {
		former := l.Reason == v1alpha1.EndMaxRuntime && l.LimitSeconds != wholeSeconds(limit)
		return former && (!announced || !l.At.Time.Equal(first))
	})
}

// announceRuntimeLimit warns of the end at the limit.
func (d *decision) announceRuntimeLimit() *v1alpha1.ClockDeadline {
	if d.Status.Limit == nil || d.Status.RunningSince == nil {
		return nil
	}
	limit := d.Status.Limit.InForce.Length()
	end := d.now.Add(limit - d.runningTime())
	ahead, due := d.applicableLeads(limit), []time.Duration(nil)
	for _, lead := range ahead {
		switch at := end.Add(-lead); {
		case d.hasWarned(v1alpha1.EndMaxRuntime, lead, limit):
		case at.After(d.now):
			d.scheduleNext(at)
		default:
			due = append(due, lead)
		}
	}
	first, announced := d.firstAnnouncedAt(limit)
	if len(due) > 0 && !announced {
		first, announced = d.now, true
	}
	if announced {
		end = laterOf(end, first.Add(d.limits.shortestLead()))
	}
	for i, lead := range due {
		d.recordWarning(Warning{
			Reason: v1alpha1.EndMaxRuntime, Lead: lead, DueAt: d.now.Add(limit - d.runningTime() - lead), Deadline: end,
			LimitSeconds: wholeSeconds(limit), Superseded: i < len(due)-1,
		})
	}
	deadline := &v1alpha1.ClockDeadline{At: *metaTime(end), Reason: v1alpha1.EndMaxRuntime, LimitSeconds: wholeSeconds(limit)}
	if announced {
		deadline.AnnouncedAt = metaTime(first)
	}
	d.scheduleNext(end)
	return deadline
}

// applicableLeads are those that lie ahead when a workload with a limit begins, longest
// first. Where none does, the shortest is due at the beginning: nothing ends
// unannounced.
func (d *decision) applicableLeads(limit time.Duration) []time.Duration {
	ahead := slices.DeleteFunc(slices.Clone(d.limits.Leads), func(lead time.Duration) bool { return lead >= limit })
	if len(ahead) == 0 {
		return []time.Duration{d.limits.shortestLead()}
	}
	slices.SortFunc(ahead, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return slices.Compact(ahead)
}

// hasWarned tells whether a warning is in the record, or was just given.
func (d *decision) hasWarned(reason v1alpha1.EndReason, lead, limit time.Duration) bool {
	return slices.ContainsFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool {
		return l.Reason == reason && l.Lead.Length() == lead && l.LimitSeconds == wholeSeconds(limit)
	})
}

// firstAnnouncedAt is when the end at a limit, or an earlier one, was first announced.
// What was said before an extension was granted counts no longer.
func (d *decision) firstAnnouncedAt(limit time.Duration) (first time.Time, ok bool) {
	for _, l := range d.Status.Leads {
		if l.Reason != v1alpha1.EndMaxRuntime || l.LimitSeconds > wholeSeconds(limit) || d.extendedSince(l.At.Time) {
			continue
		}
		if !ok || l.At.Time.Before(first) {
			first, ok = l.At.Time, true
		}
	}
	return first, ok
}

func (d *decision) extendedSince(t time.Time) bool {
	return slices.ContainsFunc(d.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.At.After(t) })
}

// recordWarning gives a warning and records it.
func (d *decision) recordWarning(w Warning) {
	d.Warnings = append(d.Warnings, w)
	d.Status.Leads = append(d.Status.Leads, v1alpha1.ClockLead{
		Lead: toDuration(w.Lead), Reason: w.Reason, LimitSeconds: w.LimitSeconds, At: *metaTime(d.now),
	})
}

// enforceDeadline ends what is due. What was stopped and runs is stopped again.
func (d *decision) enforceDeadline() {
	if !d.observed.Running {
		return
	}
	if d.isStopInForce() {
		d.Stop = true
		if until := d.Status.Stopped.Until; until != nil {
			d.scheduleNext(until.Time)
		}
		return
	}
	end := d.Status.Deadline
	if end == nil || d.observedUntil(end.Reason).Before(end.At.Time) {
		return
	}
	stopped := &v1alpha1.ClockStop{At: *metaTime(d.now), Reason: end.Reason, Until: metaTime(d.now), Times: 1}
	if end.Reason == v1alpha1.EndMaxRuntime {
		stopped.Until = metaTime(d.now.Add(d.limits.ResetAfter.Length()))
	}
	if before := d.Status.Stopped; before != nil {
		stopped.Times += before.Times
	}
	d.Status.Stopped, d.Status.Deadline = stopped, nil
	d.Stop, d.Stopped = true, true
	d.NextDecision = time.Time{}
	d.scheduleNext(stopped.Until.Time)
}

// observedUntil is the instant up to which the time of an end has come: for idleness
// that of the samples, since what came after them is not known.
func (d *decision) observedUntil(reason v1alpha1.EndReason) time.Time {
	if reason == v1alpha1.EndIdle {
		return d.observed.Utilization.SampledAt
	}
	return d.now
}

// isStopInForce tells whether the workload was stopped and may not run, or still runs
// on since then: what is being stopped is stopped once.
func (d *decision) isStopInForce() bool {
	s := d.Status.Stopped
	if s == nil {
		return false
	}
	outlives := d.observed.Running && !d.intervalOpened && !d.observed.RunningSince.After(s.At.Time)
	return s.Until == nil || d.now.Before(s.Until.Time) || outlives
}

// evaluateDryRun tells what would be stopped if this were none.
func (d *decision) evaluateDryRun() {
	if !d.limits.DryRun || d.limits.Exempt || !d.observed.Running {
		return
	}
	limit, timeout := d.limits.MaxRuntime.Length()+d.totalExtension(), d.limits.IdleTimeout.Length()
	if !d.limits.MaxRuntime.IsZero() && d.Status.RunningSince != nil {
		if d.runningTime() >= limit {
			d.WouldStop = v1alpha1.EndMaxRuntime
			return
		}
		d.scheduleNext(d.now.Add(limit - d.runningTime()))
	}
	if timeout > 0 && d.idleDuration >= timeout {
		d.WouldStop = v1alpha1.EndIdle
	}
}
