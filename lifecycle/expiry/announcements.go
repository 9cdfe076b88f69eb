// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"maps"
	"strconv"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
)

// describeWarning adds what a warning says, and when it is due. The digest at that time carries it, but for the approval of
// a deletion, of which the owners learn at once.
func (p *pass) describeWarning(a *notification.Announcement, w *Warning) {
	record := &p.decision.Record
	a.Deadline, a.DueAt, a.Superseded = w.Deadline, w.DueAt, w.Superseded
	a.Lead, _ = period.DurationOf(w.Lead) // a lead that has no such text is none
	switch w.Step {
	case v1alpha1.ProjectExpired:
		suspension := p.terms.followingStep(v1alpha1.ProjectExpired, w.Deadline, w.Deadline)
		a.Inputs[mail.InputSuspendAt] = formatTime(suspension)
		a.Inputs[mail.InputDeleteAt] = formatTime(p.terms.followingStep(v1alpha1.ProjectSuspended, w.Deadline, suspension))
	case v1alpha1.ProjectSuspended:
		a.Inputs[mail.InputDeleteAt] = formatTime(p.terms.followingStep(v1alpha1.ProjectSuspended, record.End, w.Deadline))
		a.Inputs[mail.InputRunning] = p.runningWorkloads()
	case v1alpha1.ProjectDeleting:
		maps.Copy(a.Inputs, map[string]string{
			mail.InputCause: mail.CauseDeletionApproved, mail.InputApprovedBy: record.Approval.By, mail.InputMessage: record.Approval.Message,
		})
	}
	if record.hasExpired() {
		a.Inputs[mail.InputExpiredAt] = formatTime(record.End)
	}
	if p.terms.LastDigest != nil && w.Step != v1alpha1.ProjectDeleting {
		day := period.DateOf(a.DueAt, p.terms.Zone)
		a.Digest = &day
	}
}

// runningWorkloads returns the number of workloads that hold GPUs.
func (p *pass) runningWorkloads() string {
	return strconv.Itoa(len(p.project.Status.Workloads) + int(p.project.Status.MoreWorkloads))
}

// stepAnnouncement returns what is announced of a change of the phase or of the end, and whether anything is.
func (p *pass) stepAnnouncement() (a notification.Announcement, found bool) {
	before, after := &p.record, &p.decision.Record
	deadline := strconv.FormatInt(before.Deadline.Unix(), 10)
	switch {
	case p.renewal != nil:
		return p.renewalAnnouncement(), true
	case p.isDeletionDismissed():
		return p.dismissalAnnouncement(), true
	case p.isOtherEndAnnounced():
		a = p.newAnnouncement(v1alpha1.NoticeProjectRenewed, after.Periods, deadline, strconv.FormatInt(after.End.Unix(), 10))
		p.describeRenewal(&a)
	case before.Phase == after.Phase:
		return a, false
	case after.Phase == v1alpha1.ProjectExpired:
		a = p.newAnnouncement(v1alpha1.NoticeProjectExpired, before.Periods, deadline)
		a.Deadline = after.Deadline
		a.Inputs[mail.InputExpiredAt] = formatTime(after.End)
		a.Inputs[mail.InputDeleteAt] = formatTime(p.terms.followingStep(v1alpha1.ProjectSuspended, after.End, after.Deadline))
	case after.Phase == v1alpha1.ProjectSuspended:
		a = p.newAnnouncement(v1alpha1.NoticeProjectSuspended, before.Periods, deadline)
		a.Deadline = after.Deadline
		a.Inputs[mail.InputExpiredAt], a.Inputs[mail.InputStopped] = formatTime(after.End), p.runningWorkloads()
	case after.Phase == v1alpha1.ProjectPendingDeletion:
		a = p.newAnnouncement(v1alpha1.NoticeProjectDeletion, before.Periods, deadline)
		a.Inputs[mail.InputExpiredAt] = formatTime(after.End)
		if !after.Closed {
			a.Inputs[mail.InputCause], a.Inputs[mail.InputExpiredAt] = mail.CauseUnconfirmed, formatTime(before.Deadline)
		}
	default:
		return a, false
	}
	return a, true
}

// renewalAnnouncement returns the announcement of a renewal.
func (p *pass) renewalAnnouncement() notification.Announcement {
	a := p.newAnnouncement(v1alpha1.NoticeProjectRenewed, p.decision.Record.Periods)
	p.describeRenewal(&a)
	a.Threshold = string(p.project.UID) + "/" + string(p.renewal.UID)
	a.Inputs[mail.InputRenewedBy] = p.renewal.Annotations[v1alpha1.AnnotationCreatedBy]
	if owner := p.renewal.Spec.OnBehalfOf; owner != "" {
		a.Inputs[mail.InputOnBehalfOf] = string(owner)
	}
	if approver := p.renewal.Status.DecidedBy; approver != "" {
		a.Inputs[mail.InputApprovedBy] = approver
		if message := p.renewal.Status.Message; message != "" {
			a.Inputs[mail.InputMessage] = message
		}
	}
	return a
}

// describeRenewal adds the new end, and how many workloads were stopped, which do not start again by themselves.
func (p *pass) describeRenewal(a *notification.Announcement) {
	a.Deadline = p.decision.Record.End
	if p.stopped > 0 {
		a.Inputs[mail.InputStopped] = strconv.Itoa(p.stopped)
	}
}

// isDeletionDismissed reports whether a deletion that was requested, and maybe approved, is dismissed. A hold does the same.
func (p *pass) isDeletionDismissed() bool {
	return p.record.Phase == v1alpha1.ProjectPendingDeletion && p.decision.Record.Phase != v1alpha1.ProjectPendingDeletion &&
		(p.observed.Held || p.observed.Dismissed)
}

// dismissalAnnouncement returns the announcement of a dismissal.
func (p *pass) dismissalAnnouncement() notification.Announcement {
	after := &p.decision.Record
	a := p.newAnnouncement(v1alpha1.NoticeProjectDeletion, p.record.Periods, p.project.Status.DeletionRequest, mail.CauseDeletionDismissed)
	by, message, until := p.dismissal()
	newEnd := after.End
	if p.observed.Held && !after.Closed && !until.IsZero() {
		// The end of the hold schedules the next confirmation, which is not requested before.
		newEnd, until = p.terms.endOf(p.terms.firstWithFullNotice(until, after.Periods)), time.Time{}
	}
	for input, value := range map[string]string{
		mail.InputCause: mail.CauseDeletionDismissed, mail.InputDecidedBy: by, mail.InputMessage: message,
		mail.InputUntil: formatTime(until), mail.InputNewEnd: formatTime(newEnd),
	} {
		if value != "" {
			a.Inputs[input] = value
		}
	}
	if after.Closed {
		delete(a.Inputs, mail.InputNewEnd)
		a.Inputs[mail.InputExpiredAt] = formatTime(after.End)
	}
	return a
}

// dismissal returns who dismissed the deletion, why, and until when; zero for no time.
func (p *pass) dismissal() (by, message string, until time.Time) {
	if !p.observed.Held {
		return p.requests.current.Status.DecidedBy, p.requests.current.Status.Message, p.decision.Record.DismissedUntil
	}
	hold := p.project.Spec.Hold
	if hold.Until != nil {
		until = hold.Until.End(p.terms.Zone)
	}
	return p.project.Annotations[v1alpha1.HeldByAnnotation], hold.Reason, until
}

// isOtherEndAnnounced reports whether people learn that an end of which they were warned, or which came, no longer holds.
// After a hold, and where the status was lost, only the Notices show that.
func (p *pass) isOtherEndAnnounced() bool {
	before := &p.record
	wasAhead := before.Phase == v1alpha1.ProjectExpiring || before.Phase == ""
	wasEnded := before.hasExpired() || before.Phase == v1alpha1.ProjectPendingDeletion
	return p.decision.Record.Phase == v1alpha1.ProjectActive && !p.observed.Held && (wasEnded || wasAhead && p.notices.hasSentWarning())
}

// formatTime returns a time as the inputs of Notices have it; empty for none.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
