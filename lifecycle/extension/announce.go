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
	"sluice.dev/lifecycle/notices"
	"sluice.dev/lifecycle/notices/message"
)

// ask tells the department's contacts that somebody has to decide. The Notices come
// first, so that a crash repeats them, under the same names, and loses none.
func (r *Reconciler) ask(ctx context.Context, asked *request, why because) error {
	text := why.String() + ": " + strings.Join(asked.approvers(), " or ") + " decides"
	inputs := asked.inputs()
	maps.Copy(inputs, why.inputs())
	if err := r.record(ctx, asked, v1alpha1.NoticeExtensionRequested, inputs, notices.Contacts(asked.department)); err != nil {
		return err
	}
	next := asked.DeepCopy()
	condition(next, v1alpha1.ConditionApplied, metav1.ConditionFalse, v1alpha1.ReasonAwaitingDecision, text)
	condition(next, v1alpha1.ConditionAnnounced, metav1.ConditionTrue, v1alpha1.ReasonRequested, "the department's contacts were told that somebody has to decide")
	if err := r.write(ctx, next); err != nil {
		return err
	}
	r.event(asked, corev1.EventTypeNormal, "ExtensionRequested", "Ask", "%s asks for %s more; %s (sluice approve %s -n %s)",
		asked.Annotations[v1alpha1.AnnotationCreatedBy], asked.Spec.By, text, asked.Name, asked.Namespace)
	return nil
}

// announce tells the project's people what was decided, and says on the Extension
// why it is not carried out, where it is not.
func (r *Reconciler) announce(ctx context.Context, asked *request, applied metav1.ConditionStatus, reason, why string) error {
	inputs := asked.inputs()
	inputs[message.InputDecision], inputs[message.InputDecidedBy] = string(asked.Status.Decision), asked.Status.DecidedBy
	// What Sluice itself says is told in each one's language; people are quoted.
	if own, ok := becauseOf(asked.Status.Message); ok && asked.Status.DecidedBy == "" {
		maps.Copy(inputs, own.inputs())
	} else {
		inputs[message.InputMessage] = asked.Status.Message
	}
	if asked.Status.NewEnd != nil {
		inputs[message.InputNewEnd] = asked.Status.NewEnd.UTC().Format(time.RFC3339)
	}
	if reason == v1alpha1.ReasonTargetGone {
		inputs[message.InputBecause] = message.BecauseWorkloadGone
	}
	if err := r.record(ctx, asked, v1alpha1.NoticeExtensionDecided, inputs, notices.Recipients(asked.project, asked.department)); err != nil {
		return err
	}
	next := asked.DeepCopy()
	if applied == metav1.ConditionFalse {
		condition(next, v1alpha1.ConditionApplied, applied, reason, why)
	}
	condition(next, v1alpha1.ConditionAnnounced, metav1.ConditionTrue, v1alpha1.ReasonDecided, "the project's people were told what was decided")
	if err := r.write(ctx, next); err != nil {
		return err
	}
	by := "the department's self-service"
	if asked.Status.DecidedBy != "" {
		by = asked.Status.DecidedBy
	} else if asked.Status.Decision == v1alpha1.ExtensionRefused {
		by = "Sluice"
	}
	text := fmt.Sprintf("%s more: %s by %s", asked.Spec.By, strings.ToLower(string(asked.Status.Decision)), by)
	if asked.Status.Message != "" {
		text += ": " + asked.Status.Message
	}
	r.event(asked, corev1.EventTypeNormal, "Extension"+string(asked.Status.Decision), "Decide", "%s", text)
	return nil
}

// record records that the recipients are told.
func (r *Reconciler) record(ctx context.Context, asked *request, kind v1alpha1.NoticeKind, inputs map[string]string, to []v1alpha1.NoticeRecipient) error {
	_, err := r.Notices.Record(ctx, notices.Announcement{
		Kind: kind, Inputs: inputs, DueAt: asked.now, Threshold: string(asked.UID),
		Subject: v1alpha1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Extension", Namespace: asked.Namespace, Name: asked.Name, UID: asked.UID,
		},
	}, to)
	return err
}

// inputs are what the texts of both kinds are made of.
func (q *request) inputs() map[string]string {
	return map[string]string{
		message.InputProject: q.project.Name, message.InputDepartment: q.department.Name,
		message.InputTargetKind: q.Spec.Target.Kind, message.InputTargetName: q.Spec.Target.Name,
		message.InputBy: q.Spec.By.String(), message.InputReason: q.Spec.Reason, message.InputAskedBy: q.Annotations[v1alpha1.AnnotationCreatedBy],
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

func condition(e *v1alpha1.Extension, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// maxNote is how many bytes an event's text may have.
const maxNote = 1024

// event is one on the workload itself, as far as it can still be named.
func (r *Reconciler) event(q *request, kind, reason, action, format string, args ...any) {
	target := q.Spec.Target
	regarding := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: target.APIVersion, Kind: target.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: target.Name},
	}
	if q.clock != nil {
		regarding.UID = q.clock.Status.RootUID
	}
	note := fmt.Sprintf(format, args...)
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	r.Events.Eventf(regarding, q.Extension, kind, reason, action, "%s", note)
}
