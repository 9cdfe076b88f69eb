// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Recorded is everything that says what lies ahead.
type Recorded struct {
	Clocks      []v1alpha1.WorkloadClock
	Notices     []v1alpha1.Notice
	Projects    []v1alpha1.Project
	Departments []v1alpha1.Department
}

// Read reads it with an administrator's rights.
func Read(ctx context.Context, c client.Reader) (Recorded, error) {
	var (
		clocks      v1alpha1.WorkloadClockList
		notices     v1alpha1.NoticeList
		projects    v1alpha1.ProjectList
		departments v1alpha1.DepartmentList
	)
	err := errors.Join(c.List(ctx, &clocks), c.List(ctx, &notices), c.List(ctx, &projects), c.List(ctx, &departments))
	if err != nil {
		return Recorded{}, fmt.Errorf("reading what lies ahead: %w", err)
	}
	return Recorded{clocks.Items, notices.Items, projects.Items, departments.Items}, nil
}

// events are all of them, those that have passed as well.
func (r Recorded) events() []Event {
	projects := map[string]*v1alpha1.Project{} // by namespace
	for i := range r.Projects {
		projects[r.Projects[i].NamespaceName()] = &r.Projects[i]
	}
	departments := map[string]*v1alpha1.Department{}
	for i := range r.Departments {
		departments[r.Departments[i].Name] = &r.Departments[i]
	}
	var events []Event
	for i := range r.Clocks {
		clock := &r.Clocks[i]
		of := setting{project: projects[clock.Namespace]}
		if of.project != nil {
			of.department = departments[of.project.Spec.Department]
		}
		events = append(events, ofClock(clock, of)...)
	}
	for i := range r.Notices {
		events = append(events, ofNotice(&r.Notices[i])...)
	}
	for i := range r.Projects {
		events = append(events, ofProject(&r.Projects[i])...)
	}
	return events
}

// ofNotice is the instant at which a message is due that nobody has sent.
func ofNotice(notice *v1alpha1.Notice) []Event {
	if phase := notice.Status.Phase; phase != "" && phase != v1alpha1.NoticePending || notice.Spec.Digest != "" {
		return nil // sent, given up, or carried by a digest that is an event of its own
	}
	what := fmt.Sprintf("notice %s to %s", notice.Spec.Kind, notice.Spec.Recipient.Email)
	event := Event{At: notice.Spec.DueAt.Time, Kind: NoticeDue, Name: notice.Name}
	if subject := notice.Spec.Subject; subject != nil {
		what += fmt.Sprintf(" about %s %s", subject.Kind, subject.Name)
		if subject.Namespace != "" {
			what += " in namespace " + subject.Namespace
		}
	}
	event.What = what
	return []Event{event}
}

// ofProject is the next step of a project's life.
func ofProject(project *v1alpha1.Project) []Event {
	next := project.Status.Next
	if next == nil {
		return nil
	}
	return []Event{{
		At: next.At.Time, Kind: ProjectStep, Project: project.Name, Name: project.Name,
		What: fmt.Sprintf("project %s becomes %s", project.Name, next.Phase),
	}}
}
