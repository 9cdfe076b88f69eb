// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/timelimit"
)

// recordWarnings records the warnings that are due.
func (r *Reconciler) recordWarnings(ctx context.Context, w *workload, d timelimit.Decision) error {
	for _, warning := range d.Warnings {
		a := w.newAnnouncement(v1alpha1.NoticeWorkloadEnding, d)
		if warning.Reason == v1alpha1.EndIdle {
			a.Kind = v1alpha1.NoticeWorkloadIdle
		}
		a.Threshold = warningKey(warning, &d.Status)
		a.DueAt, a.Deadline, a.Superseded = warning.DueAt, warning.Deadline, warning.Superseded
		if lead, err := period.DurationOf(warning.Lead); err == nil {
			a.Lead = lead
		}
		if _, err := r.Notices.Record(ctx, a, notification.ProjectRecipients(w.project, w.department)); err != nil {
			return err
		}
	}
	return nil
}

// recordStopNotice records that the workload was stopped.
func (r *Reconciler) recordStopNotice(ctx context.Context, w *workload, d timelimit.Decision) error {
	a := w.newAnnouncement(v1alpha1.NoticeWorkloadStopped, d)
	stopped := d.Status.Stopped
	a.Threshold = stopKey(&d.Status)
	a.DueAt = stopped.At.Time
	if stopped.Until != nil {
		a.Inputs["until"] = stopped.Until.UTC().Format(time.RFC3339)
	}
	a.Inputs["because"] = string(stopped.Reason)
	_, err := r.Notices.Record(ctx, a, notification.ProjectRecipients(w.project, w.department))
	return err
}

// newAnnouncement is one about the workload.
func (w *workload) newAnnouncement(kind v1alpha1.NoticeKind, d timelimit.Decision) notification.Announcement {
	ref := w.clock.Spec.Root
	inputs := map[string]string{
		"project": w.project.Name, "department": w.department.Name, "type": string(w.workloadType), "createdBy": d.Status.CreatedBy,
		"accumulatedSeconds": strconv.FormatInt(d.Status.AccumulatedSeconds, 10),
	}
	if d.Status.Limit != nil {
		inputs["limit"] = d.Status.Limit.InForce.String()
	}
	if !w.limits.IdleTimeout.IsZero() {
		inputs["idleTimeout"] = w.limits.IdleTimeout.String()
	}
	return notification.Announcement{
		Kind: kind, Inputs: inputs,
		Subject: v1alpha1.ObjectReference{
			APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: w.clock.Namespace, Name: ref.Name, UID: d.Status.RootUID,
		},
	}
}

// warningKey tells a warning from others of the same workload: which lead, of which
// limit, since when; for idleness since which use.
func warningKey(warning timelimit.Warning, s *v1alpha1.WorkloadClockStatus) string {
	var since int64
	if s.StartedAt != nil {
		since = s.StartedAt.Unix()
	}
	if warning.Reason == v1alpha1.EndIdle {
		return fmt.Sprintf("%s %s %d", warning.Reason, warning.Lead, warning.DueAt.Unix())
	}
	return fmt.Sprintf("%s %s %d %d", warning.Reason, warning.Lead, warning.LimitSeconds, since)
}

// stopKey tells a stop from others of the same workload: at which limit, since when;
// for idleness since which use. That it is stopped again is not said again.
func stopKey(s *v1alpha1.WorkloadClockStatus) string {
	var limit, since int64
	switch {
	case s.Stopped.Reason == v1alpha1.EndIdle && s.IdleSince != nil:
		since = s.IdleSince.Unix()
	case s.StartedAt != nil:
		since = s.StartedAt.Unix()
	}
	if s.Limit != nil && s.Stopped.Reason == v1alpha1.EndMaxRuntime {
		limit = int64(s.Limit.InForce.Length() / time.Second)
	}
	return fmt.Sprintf("%s %d %d", s.Stopped.Reason, limit, since)
}

// recordEvents says what was done where people look: in events on the workload, on its
// pods, in the log.
func (r *Reconciler) recordEvents(ctx context.Context, w *workload, before v1alpha1.WorkloadClockStatus, d timelimit.Decision) {
	log := ctrl.LoggerFrom(ctx).WithName("decisions").WithValues(
		"project", w.project.Name, "kind", w.clock.Spec.Root.Kind, "workload", w.clock.Spec.Root.Name, "state", d.Status.State)
	for _, warning := range d.Warnings {
		if warning.Superseded {
			continue
		}
		log.Info("warned", "because", warning.Reason, "lead", warning.Lead.String(), "deadline", warning.Deadline)
		r.recordEvent(w, corev1.EventTypeWarning, "EndsSoon", "Warn", "%s", warningMessage(w, d, warning))
	}
	if d.Reset && before.State != "" {
		log.Info("its time begins anew")
	}
	if d.Released {
		log.Info("it may be started again")
		r.recordEvent(w, corev1.EventTypeNormal, "MayStart", "Release", "it may be started again")
	}
	if d.Stopped {
		stopped := d.Status.Stopped
		workloadStops.WithLabelValues(string(stopped.Reason)).Inc()
		deadlineLag.Observe(max(0, w.now.Sub(recordedDeadline(before, stopped)).Seconds()))
		log.Info("stopped", "because", stopped.Reason, "until", stopped.Until, "times", stopped.Times)
		r.recordEvent(w, corev1.EventTypeWarning, "Stopped", "Stop", "%s", w.stopMessage(d))
	}
}

// recordedDeadline is when a stop was to happen, as it was recorded.
func recordedDeadline(before v1alpha1.WorkloadClockStatus, stopped *v1alpha1.ClockStop) time.Time {
	if before.Deadline != nil && before.Deadline.Reason == stopped.Reason {
		return before.Deadline.At.Time
	}
	return stopped.At.Time
}

// warningMessage is a warning in words.
func warningMessage(w *workload, d timelimit.Decision, warning timelimit.Warning) string {
	at := warning.Deadline.In(w.zone).Format(localTimeFormat)
	if warning.Reason == v1alpha1.EndIdle {
		return fmt.Sprintf("its GPUs are not used; unless they are, it is stopped at %s (idle for %s)", at, w.limits.IdleTimeout)
	}
	return fmt.Sprintf("it is stopped at %s, when it has run for %s; more time: sluice extend %s/%s -n %s --by 24h --reason ...",
		at, d.Status.Limit.InForce, w.clock.Spec.Root.Kind, w.clock.Spec.Root.Name, w.clock.Namespace)
}

// stopMessage is why the workload is stopped, in words.
func (w *workload) stopMessage(d timelimit.Decision) string {
	stopped := d.Status.Stopped
	until := "somebody decides"
	if stopped.Until != nil {
		until = stopped.Until.In(w.zone).Format(localTimeFormat)
	}
	switch stopped.Reason {
	case v1alpha1.EndIdle:
		return fmt.Sprintf("its GPUs were not used for %s; it may be started again at any time", w.limits.IdleTimeout)
	case v1alpha1.EndMaxRuntime:
		limit := ""
		if d.Status.Limit != nil {
			limit = d.Status.Limit.InForce.String()
		}
		return fmt.Sprintf("it has run for %s, as long as workloads of type %s of project %s may; it may be started again at %s, or with an extension",
			limit, w.workloadType, w.project.Name, until)
	}
	return fmt.Sprintf("stopped by Sluice (%s) until %s", stopped.Reason, until)
}

// recordEvent is one on the workload itself, if it can still be named.
func (r *Reconciler) recordEvent(w *workload, kind, reason, action, format string, args ...any) {
	ref := w.clock.Spec.Root
	var regarding runtime.Object = &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.clock.Namespace, Name: ref.Name, UID: w.clock.Status.RootUID,
		},
	}
	r.Events.Eventf(regarding, w.clock, kind, reason, action, format, args...)
}
