// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
)

// Reasons of the conditions of a clock.
const (
	reasonNoSample  = "NoFreshSample"
	reasonSampled   = "Sampled"
	reasonWouldStop = "WouldStop"
	reasonNothing   = "NothingDue"
)

// localTime is how people read an instant: with its zone.
const localTime = "2006-01-02 15:04 MST"

// describe says in the status what people read.
func (r *Reconciler) describe(w *workload, d ending.Decision, clock *v1alpha1.WorkloadClock) {
	s := &clock.Status
	s.WorkloadType = w.kind
	if len(w.running) > 0 {
		s.GoneSince = nil
	}
	s.Local = local(s, w.zone)
	unknown := len(w.running) > 0 && !w.use.Known && (!w.terms.IdleTimeout.IsZero() || w.terms.Clock == v1alpha1.ClockActive)
	setCondition(s, v1alpha1.ConditionIdleUnknown, unknown, reasonNoSample, reasonSampled,
		"a node of its pods has not said for three minutes, or cannot tell, whether its GPUs are used: its idle time stands still")
	if !d.Stop {
		setCondition(s, v1alpha1.ConditionUnstoppable, false, "", reasonStopped, "")
	}
	setCondition(s, v1alpha1.ConditionDryRun, d.WouldStop != "", reasonWouldStop, reasonNothing,
		fmt.Sprintf("it would be stopped (%s) if its department's limits were no dry run", d.WouldStop))
}

// setCondition sets a condition that is true, and one that was.
func setCondition(s *v1alpha1.WorkloadClockStatus, kind string, holds bool, reason, otherwise, message string) {
	if !holds && meta.FindStatusCondition(s.Conditions, kind) == nil {
		return
	}
	condition := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	if !holds {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, otherwise, ""
	}
	meta.SetStatusCondition(&s.Conditions, condition)
}

// local is a status as people read it.
func local(s *v1alpha1.WorkloadClockStatus, zone *time.Location) *v1alpha1.ClockLocal {
	l := &v1alpha1.ClockLocal{Accumulated: "0s"}
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	switch {
	case s.RunningSince == nil:
	case s.Stopped != nil:
		// What is left of it still goes, which nobody counts.
		ran += max(0, s.Stopped.At.Sub(s.RunningSince.Time))
	default:
		l.RunningSince = s.RunningSince.In(zone).Format(localTime)
	}
	if d, err := period.DurationOf(ran); err == nil {
		l.Accumulated = d.String()
	}
	switch {
	case s.Stopped != nil && s.Stopped.Until == nil:
		l.Ends = "stopped"
	case s.Stopped != nil:
		l.Ends = "stopped until " + s.Stopped.Until.In(zone).Format(localTime)
	case s.Deadline != nil:
		l.Ends = s.Deadline.At.In(zone).Format(localTime)
	case s.Limit != nil:
		l.Ends = "when it has run for " + s.Limit.InForce.String()
	default:
		l.Ends = "never"
	}
	return l
}

func gvk(ref v1alpha1.WorkloadReference) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
}
