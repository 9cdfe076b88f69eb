// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Kind says what will happen.
type Kind string

// What can lie ahead.
const (
	// WorkloadEnd is a workload's deadline.
	WorkloadEnd Kind = "WorkloadEnd"
	// WorkloadWarning is a lead before it that was not given yet.
	WorkloadWarning Kind = "WorkloadWarning"
	// NoticeDue is a message that waits for its time.
	NoticeDue Kind = "NoticeDue"
	// ProjectStep is the next phase of a project's life.
	ProjectStep Kind = "ProjectStep"
)

// Event is something that happens at an instant of policy time.
type Event struct {
	// At is when.
	At time.Time `json:"at"`
	// Kind is what.
	Kind Kind `json:"kind"`
	// What says it in words, as somebody else's names have it: not yet fit for a
	// terminal.
	What string `json:"what"`
	// Project is whose it is, where that is known.
	Project string `json:"project,omitempty"`
	// Namespace and Name are the recorded object's: a WorkloadClock, a Notice or a
	// Project.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Next are the events that come first after now: all those of one instant, in
// the order of their words.
func Next(now time.Time, recorded Recorded) []Event {
	events := slices.DeleteFunc(recorded.events(), func(e Event) bool { return !e.At.After(now) })
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.What, b.What))
	})
	for i := range events {
		if !events[i].At.Equal(events[0].At) {
			return events[:i]
		}
	}
	return events
}

// inProject is " in project x", where the project is known, else the namespace.
func inProject(project, namespace string) string {
	if project == "" {
		return fmt.Sprintf(" in namespace %s", namespace)
	}
	return fmt.Sprintf(" in project %s", project)
}
