// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
	"sluice.dev/lifecycle/notices"
)

// warn records the warnings that are due.
func (r *Reconciler) warn(ctx context.Context, w *workload, d ending.Decision) error {
	for _, warning := range d.Warnings {
		a := w.announcement(v1alpha1.NoticeWorkloadEnding, d)
		if warning.Reason == v1alpha1.EndIdle {
			a.Kind = v1alpha1.NoticeWorkloadIdle
		}
		a.Threshold = threshold(warning, &d.Status)
		a.DueAt, a.Deadline, a.Superseded = warning.DueAt, warning.Deadline, warning.Superseded
		if lead, err := period.DurationOf(warning.Lead); err == nil {
			a.Lead = lead
		}
		if _, err := r.Notices.Record(ctx, a, notices.Recipients(w.project, w.department)); err != nil {
			return err
		}
	}
	return nil
}

// announceStop records that the workload was stopped.
func (r *Reconciler) announceStop(ctx context.Context, w *workload, d ending.Decision) error {
	a := w.announcement(v1alpha1.NoticeWorkloadStopped, d)
	stopped := d.Status.Stopped
	a.Threshold = stopOf(&d.Status)
	a.DueAt = stopped.At.Time
	if stopped.Until != nil {
		a.Inputs["until"] = stopped.Until.UTC().Format(time.RFC3339)
	}
	a.Inputs["because"] = string(stopped.Reason)
	_, err := r.Notices.Record(ctx, a, notices.Recipients(w.project, w.department))
	return err
}

// announcement is one about the workload.
func (w *workload) announcement(kind v1alpha1.NoticeKind, d ending.Decision) notices.Announcement {
	ref := w.clock.Spec.Root
	inputs := map[string]string{
		"project": w.project.Name, "department": w.department.Name, "type": string(w.kind), "createdBy": d.Status.CreatedBy,
		"accumulatedSeconds": strconv.FormatInt(d.Status.AccumulatedSeconds, 10),
	}
	if d.Status.Limit != nil {
		inputs["limit"] = d.Status.Limit.InForce.String()
	}
	if !w.terms.IdleTimeout.IsZero() {
		inputs["idleTimeout"] = w.terms.IdleTimeout.String()
	}
	return notices.Announcement{
		Kind: kind, Inputs: inputs,
		Subject: v1alpha1.ObjectReference{
			APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: w.clock.Namespace, Name: ref.Name, UID: d.Status.RootUID,
		},
	}
}

// threshold tells a warning from others of the same workload: which lead, of which
// limit, since when; for idleness since which use.
func threshold(warning ending.Warning, s *v1alpha1.WorkloadClockStatus) string {
	var since int64
	if s.BeganAt != nil {
		since = s.BeganAt.Unix()
	}
	if warning.Reason == v1alpha1.EndIdle {
		return fmt.Sprintf("%s %s %d", warning.Reason, warning.Lead, warning.DueAt.Unix())
	}
	return fmt.Sprintf("%s %s %d %d", warning.Reason, warning.Lead, warning.LimitSeconds, since)
}

// stopOf tells a stop from others of the same workload: at which limit, since when;
// for idleness since which use. That it is stopped again is not said again.
func stopOf(s *v1alpha1.WorkloadClockStatus) string {
	var limit, since int64
	switch {
	case s.Stopped.Reason == v1alpha1.EndIdle && s.IdleSince != nil:
		since = s.IdleSince.Unix()
	case s.BeganAt != nil:
		since = s.BeganAt.Unix()
	}
	if s.Limit != nil && s.Stopped.Reason == v1alpha1.EndMaxRuntime {
		limit = int64(s.Limit.InForce.Length() / time.Second)
	}
	return fmt.Sprintf("%s %d %d", s.Stopped.Reason, limit, since)
}
