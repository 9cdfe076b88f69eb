// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
)

// The defaults of a department without its own, as in the API's schema.
var (
	defaultLeads        = []time.Duration{30 * 24 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour}
	defaultSuspendAfter = 14 * 24 * time.Hour
	defaultDeleteAfter  = 30 * 24 * time.Hour
)

// DepartmentTerms returns the rules of a department for its projects. They lack the start of a project.
func DepartmentTerms(department *v1alpha1.Department) Terms {
	rules, notices := &department.Spec.Projects, &department.Spec.Notices
	zone, err := time.LoadLocation(notices.TimeZone)
	if err != nil {
		zone = time.UTC // admission refuses unknown names, but an older object can hold one
	}
	t := Terms{
		AtExpiry: rules.AtExpiry, SuspendAfter: defaultSuspendAfter, DeleteAfter: defaultDeleteAfter,
		Zone: zone, Calendar: NewCalendar(department.Spec.Holidays, zone),
	}
	if rules.Validity != nil {
		t.Validity = *rules.Validity
	}
	if rules.SuspendAfter != nil && rules.SuspendAfter.Length() > 0 {
		t.SuspendAfter = rules.SuspendAfter.Length()
	}
	if rules.DeleteAfter != nil && rules.DeleteAfter.Length() > 0 {
		t.DeleteAfter = rules.DeleteAfter.Length()
	}
	for _, lead := range notices.ProjectExpiry {
		if lead.Length() > 0 {
			t.Leads = append(t.Leads, lead.Length())
		}
	}
	if len(t.Leads) == 0 {
		t.Leads = defaultLeads
	}
	if digests, err := notification.ParseDigestSchedule(*notices); err == nil && digests != nil {
		t.LastDigest = func(at time.Time) (time.Time, bool) {
			run, _, found := digests.LastRun(at)
			return run, found
		}
	}
	return t
}

// StartingWith returns the terms for a project, whose creation has policy time.
func (t Terms) StartingWith(project *v1alpha1.Project, clock policytime.Clock) Terms {
	if from := project.Spec.ValidFrom; from != nil {
		t.Anchor, t.First = from.Start(time.UTC), *from
		return t
	}
	t.Anchor = policytime.FromTimestamp(clock, project.CreationTimestamp.Time).Truncate(time.Second)
	// A step of policy time in the second of the creation does not change the recorded start.
	if e := project.Status.Expiry; e != nil && e.Anchor != nil {
		recorded := e.Anchor.UTC()
		if !recorded.Before(clock.FromReal(project.CreationTimestamp.Time).Truncate(time.Second)) && recorded.Before(t.Anchor) {
			t.Anchor = recorded
		}
	}
	t.First = period.DateOf(t.Anchor, t.Zone)
	return t
}

// DueTime is when a warning of a project's next step is due.
type DueTime struct {
	Lead  time.Duration
	DueAt time.Time
}

// DueTimes returns when the warnings of the project's recorded next step are due, the first one first.
func (t Terms) DueTimes(status *v1alpha1.ProjectStatus) (due []DueTime) {
	if status.Next == nil || t.Validity.IsZero() || status.Next.Phase == v1alpha1.ProjectDeleting {
		return nil // the mail about a deletion was due when it was approved
	}
	record := recordOf(status)
	s := t.stepAfter(&record)
	for _, lead := range s.leads {
		due = append(due, DueTime{Lead: lead, DueAt: t.dueAt(status.Next.At.Time, lead)})
	}
	return due
}

// termsCache holds the terms of departments, since reading a time zone and parsing a schedule take longer than a decision.
type termsCache struct {
	mu   sync.Mutex
	byID map[types.UID]departmentTerms
}

type departmentTerms struct {
	generation int64
	terms      Terms
}

func (c *termsCache) load(department *v1alpha1.Department) Terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.byID[department.UID]; ok && known.generation == department.Generation && department.Generation > 0 {
		return known.terms
	}
	if c.byID == nil {
		c.byID = map[types.UID]departmentTerms{}
	}
	terms := DepartmentTerms(department)
	c.byID[department.UID] = departmentTerms{department.Generation, terms}
	return terms
}
