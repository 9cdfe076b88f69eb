// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// UpcomingEventKind says what will happen.
type UpcomingEventKind string

// What can lie ahead.
const (
	// WorkloadEndEvent is a workload's deadline.
	WorkloadEndEvent UpcomingEventKind = "WorkloadEnd"
	// WorkloadWarningEvent is a lead before it that was not given yet.
	WorkloadWarningEvent UpcomingEventKind = "WorkloadWarning"
	// NoticeDueEvent is a message that waits for its time.
	NoticeDueEvent UpcomingEventKind = "NoticeDue"
	// ProjectPhaseEvent is the next phase of a project's life.
	ProjectPhaseEvent UpcomingEventKind = "ProjectStep"
)

// UpcomingEvent is something that happens at an instant of policy time.
type UpcomingEvent struct {
	// At is when.
	At time.Time `json:"at"`
	// Kind is what.
	Kind UpcomingEventKind `json:"kind"`
	// Description says it in words, as somebody else's names have it: not yet fit for a
	// terminal.
	Description string `json:"what"`
	// Project is whose it is, where that is known.
	Project string `json:"project,omitempty"`
	// Namespace and Name are the recorded object's: a WorkloadClock, a Notice or a
	// Project.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// NextEvents are the events that come first after now: all those of one instant, in
// the order of their words.
func NextEvents(now time.Time, recorded EventSources) []UpcomingEvent {
	events := slices.DeleteFunc(recorded.allEvents(), func(e UpcomingEvent) bool { return !e.At.After(now) })
	slices.SortStableFunc(events, func(a, b UpcomingEvent) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Description, b.Description))
	})
	for i := range events {
		if !events[i].At.Equal(events[0].At) {
			return events[:i]
		}
	}
	return events
}

// formatProjectScope is " in project x", where the project is known, else the namespace.
func formatProjectScope(project, namespace string) string {
	if project == "" {
		return fmt.Sprintf(" in namespace %s", namespace)
	}
	return fmt.Sprintf(" in project %s", project)
}

// EventSources is everything that says what lies ahead.
type EventSources struct {
	Clocks      []v1alpha1.WorkloadClock
	Notices     []v1alpha1.Notice
	Projects    []v1alpha1.Project
	Departments []v1alpha1.Department
}

// ListEventSources reads it with an administrator's rights.
func ListEventSources(ctx context.Context, c client.Reader) (EventSources, error) {
	var (
		clocks      v1alpha1.WorkloadClockList
		notices     v1alpha1.NoticeList
		projects    v1alpha1.ProjectList
		departments v1alpha1.DepartmentList
	)
	err := errors.Join(c.List(ctx, &clocks), c.List(ctx, &notices), c.List(ctx, &projects), c.List(ctx, &departments))
	if err != nil {
		return EventSources{}, fmt.Errorf("reading what lies ahead: %w", err)
	}
	return EventSources{clocks.Items, notices.Items, projects.Items, departments.Items}, nil
}

// allEvents are all of them, those that have passed as well.
func (r EventSources) allEvents() []UpcomingEvent {
	projects := map[string]*v1alpha1.Project{} // by namespace
	for i := range r.Projects {
		projects[r.Projects[i].NamespaceName()] = &r.Projects[i]
	}
	departments := map[string]*v1alpha1.Department{}
	for i := range r.Departments {
		departments[r.Departments[i].Name] = &r.Departments[i]
	}
	var events []UpcomingEvent
	for i := range r.Clocks {
		clock := &r.Clocks[i]
		of := warningContext{project: projects[clock.Namespace]}
		if of.project != nil {
			of.department = departments[of.project.Spec.Department]
		}
		events = append(events, workloadClockEvents(clock, of)...)
	}
	for i := range r.Notices {
		events = append(events, noticeEvents(&r.Notices[i])...)
	}
	for i := range r.Projects {
		events = append(events, projectEvents(&r.Projects[i])...)
	}
	return events
}

// noticeEvents is the instant at which a message is due that nobody has sent.
func noticeEvents(notice *v1alpha1.Notice) []UpcomingEvent {
	if phase := notice.Status.Phase; phase != "" && phase != v1alpha1.NoticePending || notice.Spec.Digest != "" {
		return nil // sent, given up, or carried by a digest that is an event of its own
	}
	what := fmt.Sprintf("notice %s to %s", notice.Spec.Kind, notice.Spec.Recipient.Email)
	event := UpcomingEvent{At: notice.Spec.DueAt.Time, Kind: NoticeDueEvent, Name: notice.Name}
	if subject := notice.Spec.Subject; subject != nil {
		what += fmt.Sprintf(" about %s %s", subject.Kind, subject.Name)
		if subject.Namespace != "" {
			what += " in namespace " + subject.Namespace
		}
	}
	event.Description = what
	return []UpcomingEvent{event}
}

// projectEvents is the next step of a project's life.
func projectEvents(project *v1alpha1.Project) []UpcomingEvent {
	next := project.Status.Next
	if next == nil {
		return nil
	}
	return []UpcomingEvent{{
		At: next.At.Time, Kind: ProjectPhaseEvent, Project: project.Name, Name: project.Name,
		Description: fmt.Sprintf("project %s becomes %s", project.Name, next.Phase),
	}}
}

// warningContext is what a workload's warnings depend on; either may be unknown.
type warningContext struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
}

// workloadClockEvents are a workload's end and the warnings before it that were not given.
// While the time of a workload stands still, so does its end: it never comes.
func workloadClockEvents(clock *v1alpha1.WorkloadClock, of warningContext) []UpcomingEvent {
	deadline := clock.Status.Deadline
	if deadline == nil || clock.Status.State != v1alpha1.ClockStateRunning {
		return nil
	}
	event := UpcomingEvent{Namespace: clock.Namespace, Name: clock.Name}
	if of.project != nil {
		event.Project = of.project.Name
	}
	root := clock.Spec.Root
	end := fmt.Sprintf("end of %s %s%s", root.Kind, root.Name, formatProjectScope(event.Project, clock.Namespace))
	add := func(at time.Time, kind UpcomingEventKind, what string) UpcomingEvent {
		event.At, event.Kind, event.Description = at, kind, what
		return event
	}
	events := []UpcomingEvent{add(deadline.At.Time, WorkloadEndEvent, fmt.Sprintf("the %s (%s)", end, deadline.Reason))}
	for _, lead := range of.warningLeads(clock) {
		if !warningRecorded(clock, lead) {
			events = append(events, add(deadline.At.Add(-lead), WorkloadWarningEvent, fmt.Sprintf("warning %s before the %s", printer.FormatDuration(lead), end)))
		}
	}
	return events
}

// warningLeads are how long before its end a workload's people are warned: as the
// department says for its limit, and at half the time-out where it idles.
// Everything else announces itself by Notices of its own.
func (of warningContext) warningLeads(clock *v1alpha1.WorkloadClock) []time.Duration {
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
		limits := v1alpha1.EffectiveLimits(clock.Status.WorkloadType, of.project.Spec.Workloads, of.department.Spec.Workloads)
		if limits.IdleTimeout.IsZero() {
			return nil
		}
		return []time.Duration{limits.IdleTimeout.Length() / 2}
	default:
		return nil
	}
}

// warningRecorded reports whether a warning was recorded for the end that is announced.
// The same lead before another end is another warning.
func warningRecorded(clock *v1alpha1.WorkloadClock, lead time.Duration) bool {
	return slices.ContainsFunc(clock.Status.Leads, func(l v1alpha1.ClockLead) bool {
		return l.Lead.Length() == lead && l.Reason == clock.Status.Deadline.Reason &&
			l.LimitSeconds == clock.Status.Deadline.LimitSeconds
	})
}
