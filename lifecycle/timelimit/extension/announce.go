// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
)

// requestDecision tells the department's contacts that somebody has to decide. The Notices come
// first, so that a crash repeats them, under the same names, and loses none.
func (r *Reconciler) requestDecision(ctx context.Context, asked *request, why explanation) error {
	text := why.String() + ": " + strings.Join(asked.approvers(), " or ") + " decides"
	inputs := asked.noticeInputs()
	maps.Copy(inputs, why.noticeInputs())
	if err := r.recordNotice(ctx, asked, v1alpha1.NoticeExtensionRequested, inputs, notification.DepartmentContacts(asked.department)); err != nil {
		return err
	}
	next := asked.DeepCopy()
	setCondition(next, v1alpha1.ConditionApplied, metav1.ConditionFalse, v1alpha1.ReasonAwaitingDecision, text)
	setCondition(next, v1alpha1.ConditionAnnounced, metav1.ConditionTrue, v1alpha1.ReasonRequested, "the department's contacts were told that somebody has to decide")
	if err := r.updateStatus(ctx, next); err != nil {
		return err
	}
	r.recordEvent(asked, corev1.EventTypeNormal, "ExtensionRequested", "Ask", "%s asks for %s more; %s (sluice approve %s -n %s)",
		asked.Annotations[v1alpha1.AnnotationCreatedBy], asked.Spec.By, text, asked.Name, asked.Namespace)
	return nil
}

// announceDecision tells the project's people what was decided, and says on the Extension
// why it is not carried out, where it is not.
func (r *Reconciler) announceDecision(ctx context.Context, asked *request, applied metav1.ConditionStatus, reason, why string) error {
	inputs := asked.noticeInputs()
	inputs[mail.InputDecision], inputs[mail.InputDecidedBy] = string(asked.Status.Decision), asked.Status.DecidedBy
	// What Sluice itself says is told in each one's language; people are quoted.
	if own, ok := parseExplanation(asked.Status.Message); ok && asked.Status.DecidedBy == "" {
		maps.Copy(inputs, own.noticeInputs())
	} else {
		inputs[mail.InputMessage] = asked.Status.Message
	}
	if asked.Status.NewEnd != nil {
		inputs[mail.InputNewEnd] = asked.Status.NewEnd.UTC().Format(time.RFC3339)
	}
	if reason == v1alpha1.ReasonTargetNotFound {
		inputs[mail.InputCause] = mail.CauseWorkloadNotFound
	}
	if err := r.recordNotice(ctx, asked, v1alpha1.NoticeExtensionDecided, inputs, notification.ProjectRecipients(asked.project, asked.department)); err != nil {
		return err
	}
	next := asked.DeepCopy()
	if applied == metav1.ConditionFalse {
		setCondition(next, v1alpha1.ConditionApplied, applied, reason, why)
	}
	setCondition(next, v1alpha1.ConditionAnnounced, metav1.ConditionTrue, v1alpha1.ReasonDecided, "the project's people were told what was decided")
	if err := r.updateStatus(ctx, next); err != nil {
		return err
	}
	by := "the department's self-service"
	if asked.Status.DecidedBy != "" {
		by = asked.Status.DecidedBy
	} else if asked.Status.Decision == v1alpha1.ExtensionDenied {
		by = "Sluice"
	}
	text := fmt.Sprintf("%s more: %s by %s", asked.Spec.By, strings.ToLower(string(asked.Status.Decision)), by)
	if asked.Status.Message != "" {
		text += ": " + asked.Status.Message
	}
	r.recordEvent(asked, corev1.EventTypeNormal, "Extension"+string(asked.Status.Decision), "Decide", "%s", text)
	return nil
}

// recordNotice records that the recipients are told.
func (r *Reconciler) recordNotice(ctx context.Context, asked *request, kind v1alpha1.NoticeKind, inputs map[string]string, to []v1alpha1.NoticeRecipient) error {
	_, err := r.Notices.Record(ctx, notification.Announcement{
		Kind: kind, Inputs: inputs, DueAt: asked.now, Threshold: string(asked.UID),
		Subject: v1alpha1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Extension", Namespace: asked.Namespace, Name: asked.Name, UID: asked.UID,
		},
	}, to)
	return err
}

// noticeInputs are what the texts of both kinds are made of.
func (q *request) noticeInputs() map[string]string {
	return map[string]string{
		mail.InputProject: q.project.Name, mail.InputDepartment: q.department.Name,
		mail.InputTargetKind: q.Spec.Target.Kind, mail.InputTargetName: q.Spec.Target.Name,
		mail.InputExtendBy: q.Spec.By.String(), mail.InputReason: q.Spec.Reason, mail.InputRequestedBy: q.Annotations[v1alpha1.AnnotationCreatedBy],
	}
}

func (q *request) approvers() (roles []string) {
	for _, role := range q.department.Spec.Extensions.Approvers {
		roles = append(roles, string(role))
	}
	if len(roles) == 0 {
		return []string{string(v1alpha1.RoleDepartmentAdministrator)} // as the schema says
	}
	return roles
}

func setCondition(e *v1alpha1.Extension, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// maxEventNote is how many bytes an event's text may have.
const maxEventNote = 1024

// recordEvent is one on the workload itself, as far as it can still be named.
func (r *Reconciler) recordEvent(q *request, kind, reason, action, format string, args ...any) {
	target := q.Spec.Target
	regarding := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: target.APIVersion, Kind: target.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: target.Name},
	}
	if q.clock != nil {
		regarding.UID = q.clock.Status.RootUID
	}
	note := fmt.Sprintf(format, args...)
	if len(note) > maxEventNote {
		note = strings.ToValidUTF8(note[:maxEventNote-3], "") + "..."
	}
	r.Events.Eventf(regarding, q.Extension, kind, reason, action, "%s", note)
}
