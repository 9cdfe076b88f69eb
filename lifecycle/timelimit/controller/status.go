// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
)

// Reasons of the conditions of a clock.
const (
	reasonNoSample   = "NoFreshSample"
	reasonSampled    = "Sampled"
	reasonWouldStop  = "WouldStop"
	reasonNothingDue = "NothingDue"
)

// localTimeFormat is how people read an instant: with its zone.
const localTimeFormat = "2006-01-02 15:04 MST"

// setStatusDescription says in the status what people read.
func (r *Reconciler) setStatusDescription(w *workload, d timelimit.Decision, clock *v1alpha1.WorkloadClock) {
	s := &clock.Status
	s.WorkloadType = w.workloadType
	if len(w.runningPods) > 0 {
		s.MissingSince = nil
	}
	s.Local = renderLocalStatus(s, w.zone)
	unknown := len(w.runningPods) > 0 && !w.utilization.Known && (!w.limits.IdleTimeout.IsZero() || w.limits.Clock == v1alpha1.ClockActive)
	setCondition(s, v1alpha1.ConditionIdleUnknown, unknown, reasonNoSample, reasonSampled,
		"a node of its pods has not said for three minutes, or cannot tell, whether its GPUs are used: its idle time stands still")
	if !d.Stop {
		setCondition(s, v1alpha1.ConditionUnstoppable, false, "", reasonStopped, "")
	}
	setCondition(s, v1alpha1.ConditionDryRun, d.WouldStop != "", reasonWouldStop, reasonNothingDue,
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

// renderLocalStatus is a status as people read it.
func renderLocalStatus(s *v1alpha1.WorkloadClockStatus, zone *time.Location) *v1alpha1.ClockLocal {
	l := &v1alpha1.ClockLocal{Accumulated: "0s"}
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	switch {
	case s.RunningSince == nil:
	case s.Stopped != nil:
		// What is left of it still goes, which nobody counts.
		ran += max(0, s.Stopped.At.Sub(s.RunningSince.Time))
	default:
		l.RunningSince = s.RunningSince.In(zone).Format(localTimeFormat)
	}
	if d, err := period.DurationOf(ran); err == nil {
		l.Accumulated = d.String()
	}
	switch {
	case s.Stopped != nil && s.Stopped.Until == nil:
		l.Ends = "stopped"
	case s.Stopped != nil:
		l.Ends = "stopped until " + s.Stopped.Until.In(zone).Format(localTimeFormat)
	case s.Deadline != nil:
		l.Ends = s.Deadline.At.In(zone).Format(localTimeFormat)
	case s.Limit != nil:
		l.Ends = "when it has run for " + s.Limit.InForce.String()
	default:
		l.Ends = "never"
	}
	return l
}

func groupVersionKind(ref v1alpha1.WorkloadReference) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
}

// announcedDeadline is the end that people were told of.
func announcedDeadline(s *v1alpha1.WorkloadClockStatus) *metav1.Time {
	if s.Deadline == nil || s.Deadline.AnnouncedAt == nil {
		return nil
	}
	return &s.Deadline.At
}

// podStartTolerance is how long before an end was announced a pod may have begun that
// nobody saw run then, in policy time.
const podStartTolerance = time.Minute

// annotatePods tells the running pods when they end: all of them when that changes, and
// those that came later. It is for people and programs in them; what holds is in
// the clock, and so it is done before that is written. What is being stopped keeps
// its mark.
func (r *Reconciler) annotatePods(ctx context.Context, w *workload, d timelimit.Decision) {
	if d.Stop {
		return
	}
	at, before := announcedDeadline(&d.Status), announcedDeadline(&w.clock.Status)
	changed := !at.Equal(before) || w.clock.Status.Stopped != nil
	if changed {
		r.annotatedPods.remove(w.clock.UID)
		for _, pod := range w.runningPods {
			r.annotatePodDeadline(ctx, pod, at)
		}
	}
	if at == nil {
		return
	}
	since := d.Status.Deadline.AnnouncedAt.Add(-podStartTolerance)
	for _, pod := range w.runningPods {
		if r.toPolicyTime(pod.EffectiveStart()).Before(since) || !r.annotatedPods.addIfAbsent(w.clock.UID, pod.UID) {
			continue
		}
		if !changed {
			r.annotatePodDeadline(ctx, pod, at)
		}
	}
}

// annotatePodDeadline writes the end on a pod, or takes it off.
func (r *Reconciler) annotatePodDeadline(ctx context.Context, pod *podcache.Pod, at *metav1.Time) {
	var value any
	if at != nil {
		value = at.UTC().Format(time.RFC3339)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationEndsAt: value}}})
	if err != nil {
		return
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	if client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Info("a pod does not say when it ends", "namespace", pod.Namespace, "pod", pod.Name, "reason", err.Error())
	}
}

// annotatedPods are the pods that were marked after their end was announced, by clock. A
// restart forgets them, and marks them again.
type annotatedPods struct {
	mu   sync.Mutex
	pods map[types.UID]map[types.UID]struct{}
}

// addIfAbsent tells whether the pod is to be marked, and then takes it for marked.
func (m *annotatedPods) addIfAbsent(clockUID, pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, done := m.pods[clockUID][pod]; done {
		return false
	}
	if m.pods == nil {
		m.pods = map[types.UID]map[types.UID]struct{}{}
	}
	if m.pods[clockUID] == nil {
		m.pods[clockUID] = map[types.UID]struct{}{}
	}
	m.pods[clockUID][pod] = struct{}{}
	return true
}

func (m *annotatedPods) remove(clockUID types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, clockUID)
}
