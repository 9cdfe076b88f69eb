// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/timelimit"
)

// warningAnnouncements returns the announcements of the decision's warnings.
func (w *workload) warningAnnouncements(d timelimit.Decision) (announcements []notification.Announcement) {
	for _, warning := range d.Warnings {
		a := w.newAnnouncement(v1alpha1.NoticeWorkloadEnding, d)
		if warning.Reason != v1alpha1.EndMaxRuntime {
			a.Kind = v1alpha1.NoticeWorkloadIdle
			a.Inputs[mail.InputCause] = string(warning.Reason)
		}
		a.Threshold = warningKey(warning, &d.Status)
		a.DueAt, a.Deadline, a.Superseded = warning.DueAt, warning.Deadline, warning.Superseded
		if lead, err := period.DurationOf(warning.Lead); err == nil {
			a.Lead = lead
		}
		announcements = append(announcements, a)
	}
	return announcements
}

// stopAnnouncement returns the announcement of a stop.
func (w *workload) stopAnnouncement(d timelimit.Decision) notification.Announcement {
	a, stopped := w.newAnnouncement(v1alpha1.NoticeWorkloadStopped, d), d.Status.Stopped
	a.Threshold = w.stopKey(&d.Status)
	a.DueAt = stopped.At.Time
	if stopped.Until != nil && !isProjectEnd(stopped.Reason) {
		a.Inputs[mail.InputUntil] = stopped.Until.UTC().Format(time.RFC3339)
	}
	a.Inputs[mail.InputCause] = string(stopped.Reason)
	if cronJob := w.cronJob(); cronJob != "" {
		a.Inputs[mail.InputCronJob] = cronJob
	}
	return a
}

func (w *workload) newAnnouncement(kind v1alpha1.NoticeKind, d timelimit.Decision) notification.Announcement {
	ref := w.clock.Spec.Root
	inputs := map[string]string{
		mail.InputProject: w.project.Name, mail.InputDepartment: w.department.Name,
		mail.InputType: string(w.workloadType), mail.InputCreatedBy: d.Status.CreatedBy,
		mail.InputAccumulatedSeconds: strconv.FormatInt(d.Status.AccumulatedSeconds, 10),
		mail.InputMaxDuration:        w.department.Spec.Extensions.LongestExtension().String(),
	}
	if d.Status.Limit != nil {
		inputs[mail.InputLimit] = d.Status.Limit.InForce.String()
	}
	if !w.limits.IdleTimeout.IsZero() {
		inputs[mail.InputIdleTimeout] = w.limits.IdleTimeout.String()
	}
	if d.Status.StartingSince != nil {
		inputs[mail.InputStartTimeout] = w.limits.StartTimeout.String()
	}
	return notification.Announcement{
		Kind: kind, Inputs: inputs,
		Subject: v1alpha1.ObjectReference{
			APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: w.clock.Namespace, Name: ref.Name, UID: d.Status.RootUID,
		},
	}
}

// warningKey returns the deduplication key of a warning within its workload.
func warningKey(warning timelimit.Warning, s *v1alpha1.WorkloadClockStatus) string {
	if warning.Reason != v1alpha1.EndMaxRuntime {
		return fmt.Sprintf("%s %s %d", warning.Reason, warning.Lead, warning.DueAt.Unix())
	}
	return fmt.Sprintf("%s %s %d %d", warning.Reason, warning.Lead, warning.LimitSeconds, unixSeconds(s.StartedAt))
}

// stopKey returns the deduplication key of a stop within its workload. A repeated stop has
// the key of the first one.
func (w *workload) stopKey(s *v1alpha1.WorkloadClockStatus) string {
	limit, since := int64(0), unixSeconds(s.StartedAt)
	if s.Stopped.Reason == v1alpha1.EndIdle && s.IdleSince != nil {
		since = s.IdleSince.Unix()
	}
	if s.Stopped.Reason == v1alpha1.EndStartTimeout && s.StartingSince != nil {
		since = s.StartingSince.Unix()
	}
	if isProjectEnd(s.Stopped.Reason) { // the workload may never have run
		since = cmp.Or(unixSeconds(w.project.DeletionTimestamp), unixSeconds(w.project.Status.ClosedAt), since)
	}
	if s.Limit != nil && s.Stopped.Reason == v1alpha1.EndMaxRuntime {
		limit = int64(s.Limit.InForce.Length() / time.Second)
	}
	return fmt.Sprintf("%s %d %d", s.Stopped.Reason, limit, since)
}

// isProjectEnd reports whether a stop for this reason stops all workloads of a project.
func isProjectEnd(reason v1alpha1.EndReason) bool {
	return reason == v1alpha1.EndProjectSuspended || reason == v1alpha1.EndProjectDeleted
}

func unixSeconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// recordEvents records what the decision changed, in the log, in metrics and as events on
// the workload.
func (r *Reconciler) recordEvents(ctx context.Context, w *workload, previous v1alpha1.WorkloadClockStatus, d timelimit.Decision) {
	log := ctrl.LoggerFrom(ctx).WithName("decisions").WithValues(
		"project", w.project.Name, "kind", w.clock.Spec.Root.Kind, "workload", w.clock.Spec.Root.Name, "state", d.Status.State)
	for _, warning := range d.Warnings {
		if warning.Superseded {
			continue
		}
		log.Info("Warned of workload end", "reason", warning.Reason, "lead", warning.Lead.String(), "deadline", warning.Deadline)
		r.recordEvent(w, corev1.EventTypeWarning, endReasonNoun(warning.Reason)+"Approaching", "Warn", w.warningMessage(d, warning))
	}
	if d.Reset && previous.State != "" {
		log.Info("Reset workload clock")
	}
	if d.Released {
		log.Info("Released stopped workload")
		r.recordEvent(w, corev1.EventTypeNormal, "StopReleased", "Release", r.releaseMessage(ctx, w, previous.Stopped))
	}
	if d.Stopped {
		stopped := d.Status.Stopped
		workloadStops.WithLabelValues(string(stopped.Reason)).Inc()
		deadlineLag.Observe(max(0, w.now.Sub(recordedDeadline(previous, stopped)).Seconds()))
		log.Info("Stopped workload", "reason", stopped.Reason, "until", stopped.Until, "times", stopped.Times)
		reason := endReasonNoun(stopped.Reason) + "Reached"
		if isProjectEnd(stopped.Reason) {
			reason = string(stopped.Reason)
		}
		r.recordEvent(w, corev1.EventTypeWarning, reason, "Stop", w.stopMessage(d))
	}
}

// endReasonNoun returns the first part of an event's reason: RuntimeLimit, IdleTimeout or
// StartTimeout.
func endReasonNoun(reason v1alpha1.EndReason) string {
	switch reason {
	case v1alpha1.EndIdle:
		return "IdleTimeout"
	case v1alpha1.EndStartTimeout:
		return "StartTimeout"
	}
	return "RuntimeLimit"
}

// recordedDeadline returns the deadline of a stop, as the previous status had it.
func recordedDeadline(previous v1alpha1.WorkloadClockStatus, stopped *v1alpha1.ClockStop) time.Time {
	if previous.Deadline != nil && previous.Deadline.Reason == stopped.Reason {
		return previous.Deadline.At.Time
	}
	return stopped.At.Time
}

func (w *workload) warningMessage(d timelimit.Decision, warning timelimit.Warning) string {
	at := warning.Deadline.In(w.zone).Format(localTimeFormat)
	if warning.Reason == v1alpha1.EndIdle {
		return fmt.Sprintf("The GPUs are idle. Unless they are used, the workload will be stopped at %s, after %s of idle time",
			at, w.limits.IdleTimeout)
	}
	if warning.Reason == v1alpha1.EndStartTimeout {
		return fmt.Sprintf("The pods hold GPUs and do not start. Unless they start, the workload loses its GPUs at %s, "+
			"%s after they were bound or admitted: it is put back into its queue, or stopped. "+
			"To see why they do not start: kubectl describe pods -n %s", at, w.limits.StartTimeout, w.clock.Namespace)
	}
	root := w.clock.Spec.Root
	return fmt.Sprintf("The workload will be stopped at %s, after %s of running time. "+
		"To request more time: sluice extend %s/%s -n %s --by %s --reason ...",
		at, d.Status.Limit.InForce, root.Kind, root.Name, w.clock.Namespace, w.department.Spec.Extensions.LongestExtension())
}

// stopMessage explains a stop and says when the workload can be started again.
func (w *workload) stopMessage(d timelimit.Decision) string {
	stopped := d.Status.Stopped
	until := "when an administrator releases it"
	if stopped.Until != nil {
		until = "at " + stopped.Until.In(w.zone).Format(localTimeFormat)
	}
	restart := fmt.Sprintf("It can be started again %s, or after an extension", until)
	idleRestart := "The workload can be started again at any time"
	if cronJob := w.cronJob(); cronJob != "" {
		restart = fmt.Sprintf("The run fails. CronJob %s can start the next one %s", cronJob, until)
		idleRestart = fmt.Sprintf("The run fails. CronJob %s starts the next one by its schedule", cronJob)
	}
	switch stopped.Reason {
	case v1alpha1.EndIdle:
		return fmt.Sprintf("The GPUs were idle for %s. %s", w.limits.IdleTimeout, idleRestart)
	case v1alpha1.EndStartTimeout:
		return fmt.Sprintf("The pods held GPUs and did not start within %s. %s", w.limits.StartTimeout, idleRestart)
	case v1alpha1.EndMaxRuntime:
		limit := ""
		if d.Status.Limit != nil {
			limit = d.Status.Limit.InForce.String()
		}
		return fmt.Sprintf("The workload ran for %s, the limit for type %s in project %s. %s", limit, w.workloadType, w.project.Name, restart)
	}
	switch stopped.Reason {
	case v1alpha1.EndProjectSuspended:
		return fmt.Sprintf("Project %s has expired and is suspended. The workload can be started again after a renewal: "+
			"sluice renew project/%s --reason ...", w.project.Name, w.project.Name)
	case v1alpha1.EndProjectDeleted:
		return fmt.Sprintf("Project %s is being deleted. In this namespace the workload cannot be started again", w.project.Name)
	}
	return fmt.Sprintf("Sluice stops the workload (%s). It can be started again %s", stopped.Reason, until)
}

// releaseMessage says that a workload can be started again after a stop, nil if it is not known. No
// workload starts by itself after a renewal.
func (r *Reconciler) releaseMessage(ctx context.Context, w *workload, stopped *v1alpha1.ClockStop) string {
	switch {
	case w.end() == v1alpha1.EndProjectSuspended:
		return fmt.Sprintf("The workload can be started again after the renewal of project %s", w.project.Name)
	case stopped == nil || stopped.Reason != v1alpha1.EndProjectSuspended:
		return "The workload can be started again"
	}
	command := ""
	if object, err := r.getRoot(ctx, rootOfClock(w.clock)); object != nil && err == nil {
		command = workloadkind.StartCommandOf(object)
	}
	if command == "" {
		return fmt.Sprintf("Project %s was renewed. To continue, start a new workload", w.project.Name)
	}
	return fmt.Sprintf("Project %s was renewed. To start the workload again: %s", w.project.Name, command)
}

// cronJob returns the name of the CronJob of which the workload is a run; empty for others.
func (w *workload) cronJob() string {
	if len(w.roots) == 0 {
		return ""
	}
	return w.roots[0].CronJob
}

// recordEvent records an event on the root workload.
func (r *Reconciler) recordEvent(w *workload, eventType, reason, action, message string) {
	ref := w.clock.Spec.Root
	regarding := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.clock.Namespace, Name: ref.Name, UID: w.clock.Status.RootUID},
	}
	r.Events.Eventf(regarding, w.clock, eventType, reason, action, "%s", message)
}
