// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"fmt"
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/show"
)

// setting is what a workload's warnings depend on; either may be unknown.
type setting struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
}

// ofClock are a workload's end and the warnings before it that were not given.
// While the time of a workload stands still, so does its end: it never comes.
func ofClock(clock *v1alpha1.WorkloadClock, of setting) []Event {
	deadline := clock.Status.Deadline
	if deadline == nil || clock.Status.State != v1alpha1.ClockStateRunning {
		return nil
	}
	event := Event{Namespace: clock.Namespace, Name: clock.Name}
	if of.project != nil {
		event.Project = of.project.Name
	}
	root := clock.Spec.Root
	end := fmt.Sprintf("end of %s %s%s", root.Kind, root.Name, inProject(event.Project, clock.Namespace))
	add := func(at time.Time, kind Kind, what string) Event {
		event.At, event.Kind, event.What = at, kind, what
		return event
	}
	events := []Event{add(deadline.At.Time, WorkloadEnd, fmt.Sprintf("the %s (%s)", end, deadline.Reason))}
	for _, lead := range of.leads(clock) {
		if !given(clock, lead) {
			events = append(events, add(deadline.At.Add(-lead), WorkloadWarning, fmt.Sprintf("warning %s before the %s", show.Span(lead), end)))
		}
	}
	return events
}

// leads are how long before its end a workload's people are warned: as the
// department says for its limit, and at half the time-out where it idles.
// Everything else announces itself by Notices of its own.
func (of setting) leads(clock *v1alpha1.WorkloadClock) []time.Duration {
	if of.department == nil {
		return nil
	}
	switch clock.Status.Deadline.Reason {
	case v1alpha1.EndMaxRuntime:
		var leads []time.Duration
		for _, lead := range of.department.Spec.Notices.WorkloadEnd {
			leads = append(leads, lead.Length())
		}
		return leads
	case v1alpha1.EndIdle:
		limits := v1alpha1.LimitsOf(clock.Status.WorkloadType, of.project.Spec.Workloads, of.department.Spec.Workloads)
		if limits.IdleTimeout.IsZero() {
			return nil
		}
		return []time.Duration{limits.IdleTimeout.Length() / 2}
	default:
		return nil
	}
}

// given reports whether a warning was recorded for the end that is announced.
// The same lead before another end is another warning.
func given(clock *v1alpha1.WorkloadClock, lead time.Duration) bool {
	return slices.ContainsFunc(clock.Status.Leads, func(l v1alpha1.ClockLead) bool {
		return l.Lead.Length() == lead && l.Reason == clock.Status.Deadline.Reason &&
			l.LimitSeconds == clock.Status.Deadline.LimitSeconds
	})
}
