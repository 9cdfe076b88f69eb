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
	r := Record{Phase: s.Phase, Closed: s.ClosedAt != nil, Periods: s.Periods, End: timeOf(s.ExpiresAt)}
	if s.Phase == v1alpha1.ProjectSuspended {
		r.Suspended = timeOf(s.PhaseSince)
	}
	if s.Next != nil {
		r.Step, r.Deadline = s.Next.Phase, s.Next.At.UTC()
	}
	e := s.Expiry
	if e == nil {
		return r
	}
	r.Validity, r.Anchor = e.Validity, timeOf(e.Anchor)
	r.FirstWarned, r.LastWarned, r.UnsentSince = timeOf(e.FirstWarnedAt), timeOf(e.LastWarnedAt), timeOf(e.UnsentSince)
	r.Moved, r.RequestHeld = timeOf(e.MovedAt), timeOf(e.RequestHeldSince)
	r.ShortenedFrom, r.DismissedUntil = timeOf(e.ShortenedFrom), timeOf(e.DismissedUntil)
	if a := e.Deletion; a != nil {
		r.Approval = Approval{Extension: a.Extension, UID: a.UID, By: a.ApprovedBy, Message: a.Message, At: a.At.UTC()}
	}
	return r
}

// setRecord writes the record into a status. The number of renewals and the last one stay.
func setRecord(s *v1alpha1.ProjectStatus, r Record, now time.Time) {
	if s.Phase != r.Phase || s.PhaseSince == nil {
		s.Phase, s.PhaseSince = r.Phase, timestamp(now)
	}
	switch {
	case !r.hasExpired() && r.Phase != v1alpha1.ProjectDeleting:
		s.ClosedAt = nil
	case s.ClosedAt == nil:
		s.ClosedAt = timestamp(now)
	}
	s.Periods, s.ExpiresAt, s.Next, s.DeletionRequest = r.Periods, timestamp(r.End), nil, ""
	if r.Phase == v1alpha1.ProjectPendingDeletion {
		s.DeletionRequest = deletionRequestName(s.PhaseSince)
	}
	if !r.Deadline.IsZero() {
		s.Next = &v1alpha1.ProjectStep{Phase: r.Step, At: *timestamp(r.Deadline)}
	}
	e := v1alpha1.ProjectExpiry{
		Validity: r.Validity, Anchor: timestamp(r.Anchor),
		FirstWarnedAt: timestamp(r.FirstWarned), LastWarnedAt: timestamp(r.LastWarned), UnsentSince: timestamp(r.UnsentSince),
		MovedAt: timestamp(r.Moved), RequestHeldSince: timestamp(r.RequestHeld),
		ShortenedFrom: timestamp(r.ShortenedFrom), DismissedUntil: timestamp(r.DismissedUntil),
	}
	if a := r.Approval; a.isGiven() {
		e.Deletion = &v1alpha1.ProjectDeletionApproval{
			Extension: a.Extension, UID: a.UID, At: *timestamp(a.At), ApprovedBy: a.By, Message: a.Message,
		}
	}
	if s.Expiry != nil {
		e.SelfServiceRenewals, e.LastRenewal = s.Expiry.SelfServiceRenewals, s.Expiry.LastRenewal
	}
	if s.Expiry = &e; e == (v1alpha1.ProjectExpiry{}) {
		s.Expiry = nil
	}
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
	if s.DeletionRequest != "" {
		fields.WithDeletionRequest(s.DeletionRequest)
	}
	if s.Phase != "" {
		fields.WithPhase(s.Phase)
	}
	if s.Periods != 0 {
		fields.WithPeriods(s.Periods)
	}
	if s.Next != nil {
		fields.WithNext(ac.ProjectStep().WithPhase(s.Next.Phase).WithAt(s.Next.At))
	}
	if s.Expiry != nil {
		fields.WithExpiry(expiryFields(s.Expiry))
	}
	return ac.Project(name).WithStatus(fields)
}

func expiryFields(e *v1alpha1.ProjectExpiry) *ac.ProjectExpiryApplyConfiguration {
	fields := ac.ProjectExpiry()
	fields.Anchor, fields.FirstWarnedAt, fields.LastWarnedAt = e.Anchor, e.FirstWarnedAt, e.LastWarnedAt
	fields.UnsentSince, fields.MovedAt, fields.RequestHeldSince = e.UnsentSince, e.MovedAt, e.RequestHeldSince
	fields.ShortenedFrom, fields.DismissedUntil = e.ShortenedFrom, e.DismissedUntil
	if e.Validity != "" {
		fields.WithValidity(e.Validity)
	}
	if e.SelfServiceRenewals != 0 {
		fields.WithSelfServiceRenewals(e.SelfServiceRenewals)
	}
	if a := e.Deletion; a != nil {
		approval := ac.ProjectDeletionApproval().WithExtension(a.Extension).WithUID(a.UID).WithAt(a.At).WithApprovedBy(a.ApprovedBy)
		if a.Message != "" {
			approval.WithMessage(a.Message)
		}
		fields.WithDeletion(approval)
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
		fields.WithLastRenewal(renewal)
	}
	return fields
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
