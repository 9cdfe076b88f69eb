// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
)

// reconcileRequest requests a decision from the department's contacts, and informs the owners of a request to renew
// their project. The Notices come first: a crash repeats them with the same names and loses none.
func (r *Reconciler) reconcileRequest(ctx context.Context, q *request, why explanation) error {
	text := why.String() + ": " + strings.Join(q.approvers(), " or ") + " decides"
	record, err := r.reconcileRequestRecord(ctx, q)
	if err != nil {
		return err
	}
	announced := "No mail was sent, because there were too many requests within a day; `sluice extensions` lists it"
	if record != nil {
		announced = "A decision was requested from the contacts of the department"
		a := q.announcement(v1alpha1.NoticeExtensionRequested, q.noticeInputs())
		maps.Copy(a.Inputs, why.noticeInputs())
		if a.DueAt = record.MailAt.Time; a.DueAt.After(record.At.Time) {
			announced = "The contacts of the department had a mail about an earlier request; the next one has this request"
			a.Bundle = strings.Join([]string{q.Namespace, record.Requester, record.Workload}, "/")
		}
		owners, contacts := r.recipients(q)
		if _, err := r.Notices.Record(ctx, a, contacts); err != nil {
			return err
		}
		if q.isRenewal() {
			a.Inputs[mail.InputInformed] = "true"
			if _, err := r.Notices.Record(ctx, a, owners); err != nil {
				return err
			}
		}
	}
	next := q.DeepCopy()
	setCondition(next, v1alpha1.ConditionApplied, metav1.ConditionFalse, v1alpha1.ReasonAwaitingDecision, text)
	setCondition(next, v1alpha1.ConditionAnnounced, metav1.ConditionTrue, v1alpha1.ReasonRequested, announced)
	if err := r.updateStatus(ctx, next); err != nil {
		return err
	}
	// The event does not name the user: the name may be a mail address.
	r.recordEvent(q, "ExtensionRequested", "Request", fmt.Sprintf("%s requested; %s (sluice approve %s -n %s)",
		q.describe(), text, q.Name, q.Namespace))
	return nil
}

// describe returns what is requested in a few words.
func (q *request) describe() string {
	if q.isRenewal() {
		return "renewal"
	}
	return q.extendBy() + " more"
}

// recipients returns who is informed of a request and its decision: the user who requested it, for a renewal also the
// owners, and the department's contacts. The contacts are told of a decision on a renewal alone.
func (r *Reconciler) recipients(q *request) (requesters, contacts []v1alpha1.NoticeRecipient) {
	user := q.Annotations[v1alpha1.AnnotationCreatedBy]
	if q.isRenewal() {
		return r.Notices.RenewalRecipients(q.project, q.department, user)
	}
	return r.Notices.WorkloadRecipients(q.project, q.department, user), notification.DepartmentContacts(q.department)
}

// reconcileAnnouncement announces the decision to the user who requested it, and on a renewal also to the project's
// owners and the department's contacts. The owners get no mail of a renewal that took effect but ProjectRenewed. If the condition Applied is false it sets that with its reason.
func (r *Reconciler) reconcileAnnouncement(ctx context.Context, q *request, applied metav1.ConditionStatus, reason, message string) error {
	inputs := q.noticeInputs()
	inputs[mail.InputDecision], inputs[mail.InputDecidedBy] = string(q.Status.Decision), q.Status.DecidedBy
	// Mails translate the messages of Sluice and quote those of people.
	if own, ok := parseExplanation(q.Status.Message); ok && q.Status.DecidedBy == "" {
		maps.Copy(inputs, own.noticeInputs())
	} else {
		inputs[mail.InputMessage] = q.Status.Message
	}
	if q.Status.NewEnd != nil {
		inputs[mail.InputNewEnd] = q.Status.NewEnd.UTC().Format(time.RFC3339)
	}
	switch reason {
	case v1alpha1.ReasonTargetNotFound:
		inputs[mail.InputCause] = mail.CauseWorkloadNotFound
	case v1alpha1.ReasonAlreadyRenewed:
		inputs[mail.InputCause] = mail.CauseNotRenewable
	}
	recipients, contacts := r.recipients(q)
	if q.isRenewal() {
		recipients = slices.Concat(recipients, contacts)
	}
	if q.isRenewal() && applied == metav1.ConditionTrue {
		owners := notification.ProjectRecipients(q.project, q.department)
		recipients = slices.DeleteFunc(recipients, func(to v1alpha1.NoticeRecipient) bool {
			return slices.ContainsFunc(owners, func(owner v1alpha1.NoticeRecipient) bool {
				return strings.EqualFold(string(owner.Email), string(to.Email))
			})
		})
	}
	if _, err := r.Notices.Record(ctx, q.announcement(v1alpha1.NoticeExtensionDecided, inputs), recipients); err != nil {
		return err
	}
	next := q.DeepCopy()
	if applied == metav1.ConditionFalse {
		setCondition(next, v1alpha1.ConditionApplied, applied, reason, message)
	}
	setCondition(next, v1alpha1.ConditionAnnounced, metav1.ConditionTrue, v1alpha1.ReasonDecided, "The decision was announced")
	if err := r.updateStatus(ctx, next); err != nil {
		return err
	}
	by := "the department's self-service"
	if q.Status.DecidedBy != "" {
		by = "an approver" // whose name may be a mail address
	} else if q.Status.Decision == v1alpha1.ExtensionDenied {
		by = "Sluice"
	}
	text := fmt.Sprintf("%s: %s by %s", q.describe(), strings.ToLower(string(q.Status.Decision)), by)
	if q.Status.Message != "" {
		text += ": " + q.Status.Message
	}
	r.recordEvent(q, "Extension"+string(q.Status.Decision), "Decide", text)
	return nil
}

// announcement returns a message about the Extension that is due now.
func (q *request) announcement(kind v1alpha1.NoticeKind, inputs map[string]string) notification.Announcement {
	return notification.Announcement{
		Kind: kind, Inputs: inputs, DueAt: q.now, Threshold: string(q.UID),
		Subject: v1alpha1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Extension", Namespace: q.Namespace, Name: q.Name, UID: q.UID,
		},
	}
}

// noticeInputs returns the inputs of both kinds of Notices.
func (q *request) noticeInputs() map[string]string {
	inputs := map[string]string{
		mail.InputProject: q.project.Name, mail.InputDepartment: q.department.Name,
		mail.InputTargetKind: q.Spec.Target.Kind, mail.InputTargetName: q.Spec.Target.Name,
		mail.InputReason: q.Spec.Reason, mail.InputRequestedBy: q.Annotations[v1alpha1.AnnotationCreatedBy],
	}
	if q.isRenewal() {
		inputs[mail.InputOnBehalfOf] = string(q.Spec.OnBehalfOf)
	} else {
		inputs[mail.InputExtendBy] = q.extendBy()
		inputs[mail.InputMaxDuration] = q.department.Spec.Extensions.LongestExtension().String()
	}
	return inputs
}

func (q *request) approvers() (roles []string) {
	for _, role := range q.department.Approvers(q.Spec.Action) {
		roles = append(roles, string(role))
	}
	return roles
}

func setCondition(e *v1alpha1.Extension, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// maxEventNote is the API's limit for the note of an event, in bytes.
const maxEventNote = 1024

// recordEvent records an event on the workload or the project.
func (r *Reconciler) recordEvent(q *request, reason, action, note string) {
	target := q.Spec.Target
	regarding := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: target.APIVersion, Kind: target.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: target.Name},
	}
	switch {
	case q.isRenewal():
		regarding.Namespace, regarding.UID = "", q.project.UID
	case q.clock != nil:
		regarding.UID = q.clock.Status.RootUID
	}
	if len(note) > maxEventNote {
		note = strings.ToValidUTF8(note[:maxEventNote-3], "") + "..."
	}
	r.Events.Eventf(regarding, q.Extension, corev1.EventTypeNormal, reason, action, "%s", note)
}
