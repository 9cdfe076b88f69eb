// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
)

// recordOf returns the record in a status.
func recordOf(s *v1alpha1.ProjectStatus) Record {
	r := Record{Phase: s.Phase, Periods: s.Periods, End: timeOf(s.ExpiresAt)}
	if s.Next != nil {
		r.Step, r.Deadline = s.Next.Phase, s.Next.At.UTC()
	}
	if e := s.Expiry; e != nil {
		r.Validity, r.Anchor = e.Validity, timeOf(e.Anchor)
		r.FirstWarned, r.LastWarned, r.UnsentSince = timeOf(e.FirstWarnedAt), timeOf(e.LastWarnedAt), timeOf(e.UnsentSince)
		r.Moved, r.RequestHeld = timeOf(e.MovedAt), timeOf(e.RequestHeldSince)
	}
	return r
}

// setRecord writes the record into a status. The number of renewals and the last one stay.
func setRecord(s *v1alpha1.ProjectStatus, r Record, now time.Time) {
	if s.Phase != r.Phase || s.PhaseSince == nil {
		s.Phase, s.PhaseSince = r.Phase, timestamp(now)
	}
	switch {
	case !closesProject(r.Phase):
		s.ClosedAt = nil
	case s.ClosedAt == nil:
		s.ClosedAt = timestamp(now)
	}
	s.Periods, s.ExpiresAt, s.Next = r.Periods, timestamp(r.End), nil
	if !r.Deadline.IsZero() {
		s.Next = &v1alpha1.ProjectStep{Phase: r.Step, At: *timestamp(r.Deadline)}
	}
	e := v1alpha1.ProjectExpiry{
		Validity: r.Validity, Anchor: timestamp(r.Anchor),
		FirstWarnedAt: timestamp(r.FirstWarned), LastWarnedAt: timestamp(r.LastWarned), UnsentSince: timestamp(r.UnsentSince),
		MovedAt: timestamp(r.Moved), RequestHeldSince: timestamp(r.RequestHeld),
	}
	if s.Expiry != nil {
		e.SelfServiceRenewals, e.LastRenewal = s.Expiry.SelfServiceRenewals, s.Expiry.LastRenewal
	}
	if s.Expiry = &e; e == (v1alpha1.ProjectExpiry{}) {
		s.Expiry = nil
	}
}

// closesProject reports whether a project in the phase accepts no new pods with GPUs. One that awaits the approval of its
// deletion because no owner confirmed it does.
func closesProject(phase v1alpha1.ProjectPhase) bool {
	return phase == v1alpha1.ProjectExpired || phase == v1alpha1.ProjectSuspended || phase == v1alpha1.ProjectDeleting
}

// fieldManager owns the fields of this controller.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-expiry"

// ownConditions are the conditions that this controller writes.
var ownConditions = []string{v1alpha1.ConditionHeld, v1alpha1.ConditionExempt, v1alpha1.ConditionExpiryBlocked}

// setConditions sets the present conditions, which have machine time, and removes the others.
func setConditions(s *v1alpha1.ProjectStatus, present []metav1.Condition) {
	for _, kind := range ownConditions {
		if !meta.IsStatusConditionPresentAndEqual(present, kind, metav1.ConditionTrue) {
			meta.RemoveStatusCondition(&s.Conditions, kind)
		}
	}
	for _, c := range present {
		meta.SetStatusCondition(&s.Conditions, c)
	}
}

// statusFields returns this controller's fields of a status.
func statusFields(name string, s *v1alpha1.ProjectStatus) *ac.ProjectApplyConfiguration {
	fields := ac.ProjectStatus().WithConditions(apply.Conditions(s.Conditions, ownConditions...)...)
	fields.PhaseSince, fields.ExpiresAt, fields.ClosedAt = s.PhaseSince, s.ExpiresAt, s.ClosedAt
	if s.Phase != "" {
		fields.WithPhase(s.Phase)
	}
	if s.Periods != 0 {
		fields.WithPeriods(s.Periods)
	}
	if s.Next != nil {
		fields.WithNext(ac.ProjectStep().WithPhase(s.Next.Phase).WithAt(s.Next.At))
	}
	if e := s.Expiry; e != nil {
		expiry := ac.ProjectExpiry()
		expiry.Anchor, expiry.FirstWarnedAt, expiry.LastWarnedAt = e.Anchor, e.FirstWarnedAt, e.LastWarnedAt
		expiry.UnsentSince, expiry.MovedAt, expiry.RequestHeldSince = e.UnsentSince, e.MovedAt, e.RequestHeldSince
		if e.Validity != "" {
			expiry.WithValidity(e.Validity)
		}
		if e.SelfServiceRenewals != 0 {
			expiry.WithSelfServiceRenewals(e.SelfServiceRenewals)
		}
		if l := e.LastRenewal; l != nil {
			renewal := ac.ProjectRenewal().WithExtension(l.Extension).WithUID(l.UID).WithAt(l.At)
			if l.RequestedBy != "" {
				renewal.WithRequestedBy(l.RequestedBy)
			}
			if l.OnBehalfOf != "" {
				renewal.WithOnBehalfOf(l.OnBehalfOf)
			}
			if l.ApprovedBy != "" {
				renewal.WithApprovedBy(l.ApprovedBy)
			}
			expiry.WithLastRenewal(renewal)
		}
		fields.WithExpiry(expiry)
	}
	return ac.Project(name).WithStatus(fields)
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// latestTimestamp is the latest time that the API can hold.
var latestTimestamp = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// timestamp returns a time in whole seconds, or nil for none.
func timestamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	if t.After(latestTimestamp) {
		t = latestTimestamp
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
