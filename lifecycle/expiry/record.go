// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// Record is the part of a project's status from which its expiry follows.
type Record struct {
	Phase v1alpha1.ProjectPhase
	// Closed reports whether the project accepts no new pods with GPUs.
	Closed bool
	// Suspended is since when the project is in the phase Suspended; zero in the other phases.
	Suspended time.Time
	// Periods is the number of the present period; 0 if none is scheduled.
	Periods int32
	// Validity and Anchor are those from which the deadline was computed.
	Validity string
	Anchor   time.Time
	// End is the end of the present period, or when the project expired; zero if it has none.
	End time.Time
	// Step is the next phase and Deadline its time; zero if there is none.
	Step     v1alpha1.ProjectPhase
	Deadline time.Time
	// FirstWarned and LastWarned are when the first and the last warning of the step were sent; zero if they were not.
	FirstWarned, LastWarned time.Time
	// UnsentSince is since when a warning of the step is due and not sent, without the time in which mail was paused.
	UnsentSince time.Time
	// Moved is when the deadline was moved last.
	Moved time.Time
	// RequestHeld is the time of the request of a renewal that held the deadline; one does so in each period.
	RequestHeld time.Time
	// ShortenedFrom is the former time of the suspension, if changed terms brought it forward.
	ShortenedFrom time.Time
	// DismissedUntil is until when the deletion of a suspended project is not requested, because it was dismissed.
	DismissedUntil time.Time
	// Approval is the approval of the deletion; zero if it was not approved.
	Approval Approval
}

// Approval is the approval of a project's deletion.
type Approval struct {
	// Extension and UID identify the request, and By the administrator who approved it, with a message.
	Extension   string
	UID         types.UID
	By, Message string
	// At is when it was recorded. Decide sets it.
	At time.Time
}

func (a Approval) isGiven() bool { return a.UID != "" }

// hasStep reports whether a step follows the present phase.
func (r *Record) hasStep() bool {
	return r.isInPeriod() || r.Phase == v1alpha1.ProjectExpired || r.Phase == v1alpha1.ProjectSuspended ||
		r.Phase == v1alpha1.ProjectPendingDeletion && r.Approval.isGiven()
}

// isInPeriod reports whether the present period has not ended, or awaits its confirmation.
func (r *Record) isInPeriod() bool {
	return r.Phase == v1alpha1.ProjectActive || r.Phase == v1alpha1.ProjectExpiring
}

// hasExpired reports whether the project expired, and was not left usable until its owners confirm it.
func (r *Record) hasExpired() bool {
	return r.Phase == v1alpha1.ProjectExpired || r.Phase == v1alpha1.ProjectSuspended ||
		r.Phase == v1alpha1.ProjectPendingDeletion && r.Closed
}

// Observation is what a decision depends on besides the record and the terms.
type Observation struct {
	// Held and Exempt report whether the project has an exception that applies now.
	Held, Exempt bool
	// MailPaused reports whether no mail can be sent: delivery is paused, or not set up.
	MailPaused bool
	// PausedUntil is the end of the present or the last pause of Sluice; zero if there was none.
	PausedUntil time.Time
	// Renewed reports whether the project is renewed now.
	Renewed bool
	// RequestedAt is the time of the oldest request of a renewal without a decision; zero for none.
	RequestedAt time.Time
	// Approval is the approval of the deletion that is requested now; zero for none.
	Approval Approval
	// Dismissed reports whether that deletion was dismissed, and DismissedUntil until when: zero if no time was given.
	Dismissed      bool
	DismissedUntil time.Time
	// Owners and Contacts return the delivery of a warning to the project's owners and to the department's contacts.
	Owners, Contacts func(WarningKey) Delivery
}

// Delivery is what became of a warning to a group of recipients.
type Delivery struct {
	// SentAt is when it was sent to the first of them; zero if it was not.
	SentAt time.Time
	// Failed reports whether it will reach none of them.
	Failed bool
	// Missing reports whether it is not recorded for one of them.
	Missing bool
}

// WarningKey identifies a warning of a project.
type WarningKey struct {
	// Step is the phase of which it warns, Periods the period that ends, 0 after its end, and Deadline when the step comes.
	Step     v1alpha1.ProjectPhase
	Periods  int32
	Deadline time.Time
	Lead     time.Duration
}

// Warning is a warning that is due.
type Warning struct {
	WarningKey
	DueAt time.Time
	// ToContacts reports whether it goes to the department's contacts as well.
	ToContacts bool
	// Superseded reports whether a later one is due as well: it is recorded and not sent.
	Superseded bool
}

// Decision is the result of Decide. Other warnings than these are not to be sent any more.
type Decision struct {
	Record   Record
	Warnings []Warning
	// Blocked is the reason for which the next step cannot come: ReasonMailPaused, ReasonNoRecipient or empty.
	Blocked string
	// Paused reports whether the deadline has passed and a pause of Sluice holds the step.
	Paused bool
	// HeldByRequest reports whether the deadline has passed and a request of a renewal holds the step.
	HeldByRequest bool
	// Next is the time of the next decision if nothing changes before; zero for never.
	Next time.Time
}
