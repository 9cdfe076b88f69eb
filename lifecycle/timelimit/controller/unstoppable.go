// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// restartReportThreshold is the number of stops above which restarts are reported.
const restartReportThreshold = 3

// Reasons of the condition Unstoppable.
const (
	reasonNoEffect    = mail.CauseStopWithoutEffect
	reasonFlapping    = mail.CauseRestartedAfterStop
	reasonUnsupported = v1alpha1.ReasonUnknownKind
	reasonForbidden   = "Forbidden"
	reasonStopped     = "Stopped"
)

// unstoppableReason returns why another attempt does not help, or "" if it can.
func unstoppableReason(d timelimit.Decision, err error) string {
	switch {
	case errors.Is(err, suspend.ErrUnsupported):
		return reasonUnsupported
	case errors.Is(err, suspend.ErrForbidden):
		return reasonForbidden
	case err == nil && d.Status.Stopped.Times >= restartReportThreshold:
		return reasonFlapping
	}
	return ""
}

// maxReportedPods is the number of pods that a condition or a Notice names.
const maxReportedPods = 5

// podNames returns the names of the first pods, sorted, as text.
func (w *workload) podNames() string {
	var names []string
	for _, pod := range w.allPods() {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	if more := len(names) - maxReportedPods; more > 0 {
		names = append(names[:maxReportedPods], fmt.Sprintf("+%d", more))
	}
	return strings.Join(names, ", ")
}

// unstoppableMessage explains a condition Unstoppable.
func (w *workload) unstoppableMessage(reason string, problem error) string {
	switch {
	case reason == reasonNoEffect:
		message := fmt.Sprintf("The pods run on after %d attempts to stop the workload and %d evictions: %s. "+
			"Check the controller of the workload, the nodes of the pods, and their finalizers",
			maxActionRetries+1, maxEvictions, w.podNames())
		if problem != nil {
			message += ". The last attempt failed: " + problem.Error()
		}
		return message
	case problem != nil:
		return problem.Error()
	}
	return fmt.Sprintf("The workload was stopped %d times and started again each time. "+
		"Find what starts it, such as an autoscaler or a GitOps tool", w.clock.Status.Stopped.Times)
}

// reportUnstoppable sets the condition Unstoppable. When it is new, it also records a Notice to
// the department's contacts and an event, and counts the workload.
func (r *Reconciler) reportUnstoppable(ctx context.Context, w *workload, d timelimit.Decision, reason string, problem error) error {
	message := w.unstoppableMessage(reason, problem)
	known := meta.IsStatusConditionTrue(w.clock.Status.Conditions, v1alpha1.ConditionUnstoppable)
	if !known {
		announcement := w.newAnnouncement(v1alpha1.NoticeWorkloadUnstoppable, d)
		announcement.Threshold, announcement.DueAt = w.stopKey(&d.Status), w.now
		announcement.Inputs[mail.InputCause], announcement.Inputs[mail.InputPods] = reason, w.podNames()
		if _, err := r.Notices.Record(ctx, announcement, notification.DepartmentContacts(w.department)); err != nil {
			return err
		}
	}
	next := w.clock.DeepCopy()
	setCondition(&next.Status, v1alpha1.ConditionUnstoppable, true, reason, reasonStopped, v1alpha1.TruncateText(message, v1alpha1.MaxConditionMessageBytes))
	w.showUnstoppable(&next.Status)
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("update clock %s/%s: %w", next.Namespace, next.Name, err)
	}
	if !known {
		unstoppableWorkloads.WithLabelValues(reason).Inc()
		r.recordEvent(w, corev1.EventTypeWarning, "Unstoppable", "Stop", message)
	}
	ctrl.LoggerFrom(ctx).Info("Failed to stop workload for good", "clock", w.clock.Name, "reason", message)
	return nil
}

// showUnstoppable shows that an unstoppable workload runs.
func (w *workload) showUnstoppable(s *v1alpha1.WorkloadClockStatus) {
	s.State = v1alpha1.ClockStateRunning
	s.Local = renderLocalStatus(s, w.zone)
	s.Local.Ends = "unstoppable"
}
