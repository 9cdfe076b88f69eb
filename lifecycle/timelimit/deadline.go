// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimit

import (
	"cmp"
	"slices"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// determineLimit determines how long the workload may run. If a limit is set or lowered
// while the workload runs, the longest lead remains, or the old remainder if that is less.
func (d *decision) determineLimit() {
	recorded, configured := d.Status.Limit, d.limits.MaxRuntime
	if !d.limits.hasRuntimeLimit() {
		d.Status.Limit = nil
		return
	}
	// The limits that pods request are known only while pods exist.
	if recorded != nil && !d.observed.Running {
		return
	}
	inForce := configured
	if extension := d.totalExtension(); extension > 0 {
		inForce = toDuration(configured.Length() + extension)
	}
	switch {
	case d.isStarting():
	case recorded == nil:
		inForce = atLeast(inForce, d.runningTime()+d.limits.longestLead())
	case recorded.Configured.Equal(configured):
		return
	default:
		inForce = atLeast(inForce, min(d.runningTime()+d.limits.longestLead(), recorded.InForce.Length()))
	}
	d.Status.Limit = &v1alpha1.ClockLimit{Configured: configured, InForce: inForce, ShortenedFrom: d.shortenedFrom(recorded, inForce)}
}

// shortenedFrom returns the limit that the department or the project shortened to inForce
// while the workload ran, or nil. Limits that the pods request shorten nothing.
func (d *decision) shortenedFrom(recorded *v1alpha1.ClockLimit, inForce period.Duration) *period.Duration {
	if d.isStarting() || d.limits.SetByPods {
		return nil
	}
	former := toDuration(maxDuration)
	if recorded != nil {
		former = recorded.InForce
		if earlier := recorded.ShortenedFrom; earlier != nil && earlier.Length() > former.Length() {
			former = *earlier
		}
	}
	if inForce.Length() >= former.Length() {
		return nil
	}
	return &former
}

// isStarting reports whether the running time begins with this decision.
func (d *decision) isStarting() bool {
	return d.Status.AccumulatedSeconds == 0 && (d.Status.RunningSince == nil || d.intervalOpened)
}

func atLeast(duration period.Duration, length time.Duration) period.Duration {
	if duration.Length() >= length {
		return duration
	}
	return toDuration(length)
}

// announceDeadlines sets the next deadline and adds the warnings that are due.
func (d *decision) announceDeadlines() {
	before := d.Status.Deadline
	d.formerDeadline, d.Status.Deadline = before, nil
	if d.isStopInForce() || d.observed.ProjectEnd != "" {
		return
	}
	if !d.observed.Running {
		d.Status.Deadline = d.announceStartTimeout()
		return
	}
	deadline, idle := d.announceRuntimeLimit(before), d.announceIdleTimeout()
	if idle != nil && (deadline == nil || idle.At.Before(&deadline.At)) {
		deadline = idle
	}
	d.Status.Deadline = deadline
	d.pruneLeads()
}

// leadPruneThreshold is the number of recorded warnings above which those of former limits
// are removed. The API allows 64.
const leadPruneThreshold = 48

// pruneLeads removes warnings of former limits, except the first one that announced the end.
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

// announceRuntimeLimit adds the due warnings of the runtime limit and returns its deadline. A
// warning says nothing new if it has the deadline of the one before, whose limit was another.
func (d *decision) announceRuntimeLimit(before *v1alpha1.ClockDeadline) *v1alpha1.ClockDeadline {
	if d.Status.Limit == nil || d.Status.RunningSince == nil {
		return nil
	}
	limit := d.Status.Limit.InForce.Length()
	end := d.now.Add(limit - d.runningTime())
	var due []time.Duration
	for _, lead := range d.applicableLeads(limit) {
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
		end = policytime.Later(end, d.lastAnnouncedAt(limit, first, len(due) > 0).Add(d.limits.shortestLead()))
	}
	for i, lead := range due {
		said := before != nil && before.Reason == v1alpha1.EndMaxRuntime && before.At.Time.Equal(metaTime(end).Time) &&
			d.hasWarned(v1alpha1.EndMaxRuntime, lead, time.Duration(before.LimitSeconds)*time.Second)
		d.recordWarning(Warning{
			Reason: v1alpha1.EndMaxRuntime, Lead: lead, DueAt: d.now.Add(limit - d.runningTime() - lead), Deadline: end,
			LimitSeconds: wholeSeconds(limit), Superseded: said || i < len(due)-1,
		})
	}
	deadline := &v1alpha1.ClockDeadline{At: *metaTime(end), Reason: v1alpha1.EndMaxRuntime, LimitSeconds: wholeSeconds(limit)}
	if held := d.Status.Limit.HeldFrom; held != nil {
		deadline.HeldFrom = metaTime(d.now.Add(held.Length() - d.runningTime()))
	}
	if announced {
		deadline.AnnouncedAt = metaTime(first)
	}
	d.scheduleNext(end)
	return deadline
}

// applicableLeads returns the leads that are shorter than the limit, longest first. If none
// is, it returns the shortest lead, which is due at the start.
func (d *decision) applicableLeads(limit time.Duration) []time.Duration {
	ahead := slices.DeleteFunc(slices.Clone(d.limits.Leads), func(lead time.Duration) bool { return lead >= limit })
	if len(ahead) == 0 {
		return []time.Duration{d.limits.shortestLead()}
	}
	slices.SortFunc(ahead, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return slices.Compact(ahead)
}

// hasWarned reports whether the status holds a warning.
func (d *decision) hasWarned(reason v1alpha1.EndReason, lead, limit time.Duration) bool {
	return slices.ContainsFunc(d.Status.Leads, func(l v1alpha1.ClockLead) bool {
		return l.Reason == reason && l.Lead.Length() == lead && l.LimitSeconds == wholeSeconds(limit)
	})
}

// firstAnnouncedAt returns when the end at this limit, or at a lower one, was first
// announced. Warnings from before the last extension do not count.
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

// lastAnnouncedAt returns when the last warning of the end at this limit was recorded, which
// is now if one is due. A warning that comes late, after an outage, postpones the end.
func (d *decision) lastAnnouncedAt(limit time.Duration, first time.Time, due bool) time.Time {
	if due {
		return d.now
	}
	last := first
	for _, l := range d.Status.Leads {
		if l.Reason == v1alpha1.EndMaxRuntime && l.LimitSeconds == wholeSeconds(limit) {
			last = policytime.Later(last, l.At.Time)
		}
	}
	return last
}

func (d *decision) extendedSince(t time.Time) bool {
	return slices.ContainsFunc(d.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.At.After(t) })
}

// recordWarning adds a warning to the decision and to the status.
func (d *decision) recordWarning(w Warning) {
	d.Warnings = append(d.Warnings, w)
	d.Status.Leads = append(d.Status.Leads, v1alpha1.ClockLead{
		Lead: toDuration(w.Lead), Reason: w.Reason, LimitSeconds: w.LimitSeconds, At: *metaTime(d.now),
	})
}

// enforceProjectEnd stops a workload whose project is suspended or being deleted, whatever its
// limits are, pods that are not bound yet included. The stop has no time of its own: a project
// that stops its workloads also refuses their start.
func (d *decision) enforceProjectEnd() {
	switch {
	case !d.observed.endsWithProject() || d.holdsStop():
	case d.observed.ProjectEnd == v1alpha1.EndProjectSuspended && !d.isStopInForce() && d.isHeldAfterPause():
	case d.isStopInForce():
		d.Stop = true
	default:
		d.recordStop(d.observed.ProjectEnd, d.now)
	}
}

// enforceDeadline stops the workload at its deadline, and again if it runs in spite of a
// stop.
func (d *decision) enforceDeadline() {
	if !d.observed.Running && d.Status.StartingSince == nil || d.holdsStop() {
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
	until := d.now
	if end.Reason == v1alpha1.EndMaxRuntime {
		until = d.now.Add(d.limits.ResetAfter.Length())
	}
	d.recordStop(end.Reason, until)
}

// recordStop stops the workload now. It may be started again at until.
func (d *decision) recordStop(reason v1alpha1.EndReason, until time.Time) {
	stopped := &v1alpha1.ClockStop{At: *metaTime(d.now), Reason: reason, Until: metaTime(until), Times: 1}
	if before := d.Status.Stopped; before != nil {
		stopped.Times += before.Times
	}
	d.Status.Stopped, d.Status.Deadline = stopped, nil
	d.Stop, d.Stopped = true, true
	d.NextDecision = time.Time{}
	d.scheduleNext(stopped.Until.Time)
}

// observedUntil returns the time up to which a deadline can be checked. Idleness is known
// only up to the samples.
func (d *decision) observedUntil(reason v1alpha1.EndReason) time.Time {
	if reason == v1alpha1.EndIdle {
		return d.observed.Utilization.SampledAt
	}
	return d.now
}

// isStopInForce reports whether the workload must not run, or still runs since its last
// stop. A workload whose stop takes long is counted once.
func (d *decision) isStopInForce() bool {
	s := d.Status.Stopped
	if s == nil {
		return false
	}
	stillRuns := d.observed.Running && !d.intervalOpened && !d.observed.RunningSince.After(s.At.Time)
	stillBound := d.Status.StartingSince != nil && !d.Status.StartingSince.After(s.At.Time)
	stillEnding := d.observed.endsWithProject() && s.Reason == d.observed.ProjectEnd
	return s.Until == nil || d.now.Before(s.Until.Time) || stillRuns || stillBound || stillEnding
}

// IsOverdue reports whether a workload must be stopped at a time, as far as its recorded status
// shows: its deadline passed, or it still holds GPUs after a stop.
func IsOverdue(recorded *v1alpha1.WorkloadClockStatus, at time.Time) bool {
	if recorded.Stopped != nil && (recorded.RunningSince != nil || recorded.StartingSince != nil) {
		return true
	}
	return recorded.Deadline != nil && !at.Before(recorded.Deadline.At.Time)
}

// evaluateDryRun sets the reason for which the workload would be stopped without dry run.
func (d *decision) evaluateDryRun() {
	if !d.limits.DryRun || d.limits.Exempt {
		return
	}
	if since := d.Status.StartingSince; since != nil && !d.limits.StartTimeout.IsZero() {
		end := since.Add(d.limits.StartTimeout.Length())
		if d.scheduleNext(end); !end.After(d.now) {
			d.WouldStop = v1alpha1.EndStartTimeout
		}
	}
	if !d.observed.Running {
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
