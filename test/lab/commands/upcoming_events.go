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
	"sluice.dev/lifecycle/expiry"
)

// upcomingEventKind is the kind of an [upcomingEvent].
type upcomingEventKind string

const (
	// workloadEndEvent is the deadline of a workload.
	workloadEndEvent upcomingEventKind = "WorkloadEnd"
	// workloadWarningEvent is a warning before a deadline.
	workloadWarningEvent upcomingEventKind = "WorkloadWarning"
	// noticeDueEvent is the due time of a notice.
	noticeDueEvent upcomingEventKind = "NoticeDue"
	// projectWarningEvent is the due time of a warning before the next phase of a project.
	projectWarningEvent upcomingEventKind = "ProjectWarning"
	// projectPhaseEvent is the next phase of a project.
	projectPhaseEvent upcomingEventKind = "ProjectStep"
)

// upcomingEvent is an event at a policy time.
type upcomingEvent struct {
	At   time.Time         `json:"at"`
	Kind upcomingEventKind `json:"kind"`
	// Description has names that users chose, not sanitized.
	Description string `json:"description"`
	// Project is empty if it is unknown.
	Project string `json:"project,omitempty"`
	// Namespace and Name are those of the WorkloadClock, Notice or Project.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// nextEvents returns all events at the first event time after now, by description.
func nextEvents(now time.Time, sources eventSources) []upcomingEvent {
	events := slices.DeleteFunc(sources.allEvents(), func(e upcomingEvent) bool { return !e.At.After(now) })
	slices.SortStableFunc(events, func(a, b upcomingEvent) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Description, b.Description))
	})
	for i := range events {
		if !events[i].At.Equal(events[0].At) {
			return events[:i]
		}
	}
	return events
}

// eventSources has the objects that events follow from.
type eventSources struct {
	clocks      []v1alpha1.WorkloadClock
	notices     []v1alpha1.Notice
	projects    []v1alpha1.Project
	departments []v1alpha1.Department
}

// listEventSources lists the sources of all namespaces.
func listEventSources(ctx context.Context, c client.Reader) (eventSources, error) {
	var (
		clocks      v1alpha1.WorkloadClockList
		notices     v1alpha1.NoticeList
		projects    v1alpha1.ProjectList
		departments v1alpha1.DepartmentList
	)
	err := errors.Join(c.List(ctx, &clocks), c.List(ctx, &notices), c.List(ctx, &projects), c.List(ctx, &departments))
	if err != nil {
		return eventSources{}, fmt.Errorf("list upcoming events: %w", err)
	}
	return eventSources{clocks.Items, notices.Items, projects.Items, departments.Items}, nil
}

// allEvents returns all events, past ones included.
func (s eventSources) allEvents() []upcomingEvent {
	projects := map[string]*v1alpha1.Project{} // by namespace
	for i := range s.projects {
		projects[s.projects[i].NamespaceName()] = &s.projects[i]
	}
	departments := map[string]*v1alpha1.Department{}
	for i := range s.departments {
		departments[s.departments[i].Name] = &s.departments[i]
	}
	var events []upcomingEvent
	for i := range s.clocks {
		clock := &s.clocks[i]
		of := warningContext{project: projects[clock.Namespace]}
		if of.project != nil {
			of.department = departments[of.project.Spec.Department]
		}
		events = append(events, workloadClockEvents(clock, of)...)
	}
	for i := range s.notices {
		events = append(events, noticeEvents(&s.notices[i])...)
	}
	terms := map[string]expiry.Terms{} // by department
	for name, department := range departments {
		terms[name] = expiry.DepartmentTerms(department)
	}
	for i := range s.projects {
		events = append(events, projectEvents(&s.projects[i], terms[s.projects[i].Spec.Department])...)
	}
	return events
}

// noticeEvents returns the due time of a pending notice.
func noticeEvents(notice *v1alpha1.Notice) []upcomingEvent {
	if cmp.Or(notice.Status.Phase, v1alpha1.NoticePending) != v1alpha1.NoticePending || notice.Spec.Digest != "" {
		return nil // a digest is a notice of its own
	}
	description := fmt.Sprintf("notice %s to %s", notice.Spec.Kind, notice.Spec.Recipient.Email)
	if subject := notice.Spec.Subject; subject != nil {
		description += fmt.Sprintf(" about %s %s%s", subject.Kind, subject.Name, inNamespace(subject.Namespace))
	}
	return []upcomingEvent{{At: notice.Spec.DueAt.Time, Kind: noticeDueEvent, Name: notice.Name, Description: description}}
}

// projectEvents returns the next phase of a project and the due times of the warnings before it.
func projectEvents(project *v1alpha1.Project, terms expiry.Terms) []upcomingEvent {
	next := project.Status.Next
	if next == nil {
		return nil
	}
	step := fmt.Sprintf("project %s becomes %s", project.Name, next.Phase)
	newEvent := func(at time.Time, kind upcomingEventKind, description string) upcomingEvent {
		return upcomingEvent{At: at, Kind: kind, Project: project.Name, Name: project.Name, Description: description}
	}
	events := []upcomingEvent{newEvent(next.At.Time, projectPhaseEvent, step)}
	for _, due := range terms.DueTimes(&project.Status) {
		description := fmt.Sprintf("warning %s before %s", printer.FormatDuration(due.Lead), step)
		events = append(events, newEvent(due.DueAt, projectWarningEvent, description))
	}
	return events
}

// warningContext has the project and the department of a workload; nil if unknown.
type warningContext struct {
	project    *v1alpha1.Project
	department *v1alpha1.Department
}

// workloadClockEvents returns the end of a running workload and the warnings that
// were not given yet. A paused workload has no end.
func workloadClockEvents(clock *v1alpha1.WorkloadClock, of warningContext) []upcomingEvent {
	deadline := clock.Status.Deadline
	if deadline == nil || clock.Status.State != v1alpha1.ClockStateRunning {
		return nil
	}
	project, scope := "", inNamespace(clock.Namespace)
	if of.project != nil {
		project = of.project.Name
		scope = " in project " + project
	}
	end := fmt.Sprintf("end of %s %s%s", clock.Spec.Root.Kind, clock.Spec.Root.Name, scope)
	newEvent := func(at time.Time, kind upcomingEventKind, description string) upcomingEvent {
		return upcomingEvent{
			At: at, Kind: kind, Description: description, Project: project, Namespace: clock.Namespace, Name: clock.Name,
		}
	}
	events := []upcomingEvent{newEvent(deadline.At.Time, workloadEndEvent, fmt.Sprintf("the %s (%s)", end, deadline.Reason))}
	for _, lead := range of.warningLeads(clock) {
		if !warningRecorded(clock, lead) {
			description := fmt.Sprintf("warning %s before the %s", printer.FormatDuration(lead), end)
			events = append(events, newEvent(deadline.At.Add(-lead), workloadWarningEvent, description))
		}
	}
	return events
}

// warningLeads returns the leads of the warnings before a deadline: those of the
// department before the running time limit, and half the timeout before an idle
// end or one at the start timeout. Notices announce all other ends.
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
		limits := v1alpha1.TightestLimits(clock.Status.WorkloadType, of.project.Spec.Workloads, of.department.Spec.Workloads)
		if limits.IdleTimeout.IsZero() {
			return nil
		}
		return []time.Duration{limits.IdleTimeout.Length() / 2}
	case v1alpha1.EndStartTimeout:
		limits := v1alpha1.TightestLimits(clock.Status.WorkloadType, of.project.Spec.Workloads, of.department.Spec.Workloads)
		return []time.Duration{limits.StartTimeout.Length() / 2}
	default:
		return nil
	}
}

// warningRecorded reports whether the warning for the current deadline was given. A
// warning for another limit does not count.
func warningRecorded(clock *v1alpha1.WorkloadClock, lead time.Duration) bool {
	return slices.ContainsFunc(clock.Status.Leads, func(l v1alpha1.ClockLead) bool {
		return l.Lead.Length() == lead && l.Reason == clock.Status.Deadline.Reason &&
			l.LimitSeconds == clock.Status.Deadline.LimitSeconds
	})
}

// inNamespace returns the namespace of a namespaced object as a part of a sentence.
func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}
