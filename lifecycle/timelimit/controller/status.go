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
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
)

// Reasons of the conditions of clocks and extensions.
const (
	reasonNoSample     = "NoFreshSample"
	reasonSampled      = "Sampled"
	reasonWouldStop    = "WouldStop"
	reasonWithinLimits = "WithinLimits"
	reasonExtended     = "Extended"
)

// localTimeFormat shows a time with its zone.
const localTimeFormat = "2006-01-02 15:04 MST"

// setDisplayFields sets the fields of a status that timelimit.Decide does not: conditions,
// type and local times.
func (r *Reconciler) setDisplayFields(w *workload, d timelimit.Decision, s *v1alpha1.WorkloadClockStatus) {
	s.WorkloadType = w.workloadType
	s.PodControllers = w.podControllers(s)
	if held := w.heldGPUs(); held == nil || s.GPUs == nil || held.Cmp(*s.GPUs) >= 0 || w.complete {
		s.GPUs = held
	} else {
		r.Workloads.enqueueWhenComplete(client.ObjectKeyFromObject(w.clock))
	}
	s.Local = renderLocalStatus(s, w.zone)
	unknown := len(w.runningPods) > 0 && !w.utilization.Known && (!w.limits.IdleTimeout.IsZero() || w.limits.Clock == v1alpha1.ClockActive)
	setCondition(s, v1alpha1.ConditionIdleUnknown, unknown, reasonNoSample, reasonSampled,
		"A node of its pods has written no utilization sample for three minutes, or cannot measure utilization. The idle time is paused")
	if !d.Stop {
		setCondition(s, v1alpha1.ConditionUnstoppable, false, "", reasonStopped, "")
	}
	if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionUnstoppable) {
		w.showUnstoppable(s)
	}
	setCondition(s, v1alpha1.ConditionDryRun, d.WouldStop != "", reasonWouldStop, reasonWithinLimits,
		fmt.Sprintf("The limits of the department are a dry run. Without it the workload would be stopped (%s)", d.WouldStop))
}

// podControllers returns the controllers of the running pods with those that the clock has. Too many of them leave those
// out that control no running pod.
func (w *workload) podControllers(s *v1alpha1.WorkloadClockStatus) []types.UID {
	running := sets.New[types.UID]()
	for _, pod := range w.runningPods {
		if uid := pod.Controller.UID; uid != "" && uid != s.RootUID {
			running.Insert(uid)
		}
	}
	all := running.Union(sets.New(s.PodControllers...))
	if all.Len() > v1alpha1.MaxPodControllers {
		all = running
	}
	if all.Len() == 0 {
		return nil
	}
	list := sets.List(all)
	return list[:min(len(list), v1alpha1.MaxPodControllers)]
}

// setCondition sets a condition to true or false. It does not add a false one.
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

// renderLocalStatus returns the status with times in the department's zone.
func renderLocalStatus(s *v1alpha1.WorkloadClockStatus, zone *time.Location) *v1alpha1.ClockLocal {
	l := &v1alpha1.ClockLocal{Accumulated: "0s"}
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	switch {
	case s.RunningSince == nil:
	case s.Stopped != nil:
		// Pods that still terminate after the stop do not count.
		ran += max(0, s.Stopped.At.Sub(s.RunningSince.Time))
	default:
		l.RunningSince = s.RunningSince.In(zone).Format(localTimeFormat)
	}
	if d, err := period.DurationOf(ran); err == nil {
		l.Accumulated = d.String()
	}
	switch {
	case s.Stopped != nil && (s.Stopped.Until == nil || isProjectEnd(s.Stopped.Reason)):
		l.Ends = "stopped"
	case s.Stopped != nil:
		l.Ends = "stopped until " + s.Stopped.Until.In(zone).Format(localTimeFormat)
	case s.State == v1alpha1.ClockStateFinished:
		l.Ends = "finished"
	case s.State == v1alpha1.ClockStateDeleted:
		l.Ends = "deleted"
	case s.Deadline != nil:
		l.Ends = s.Deadline.At.In(zone).Format(localTimeFormat)
	case s.Limit != nil:
		l.Ends = "after running for " + s.Limit.InForce.String()
	default:
		l.Ends = "never"
	}
	return l
}

func groupVersionKind(ref v1alpha1.WorkloadReference) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
}

// announcedDeadline returns the deadline if a warning of it was recorded, or nil.
func announcedDeadline(s *v1alpha1.WorkloadClockStatus) *metav1.Time {
	if s.Deadline == nil || s.Deadline.AnnouncedAt == nil {
		return nil
	}
	return &s.Deadline.At
}

// podStartTolerance is the time before an announcement within which a pod may have started
// without being observed, in policy time.
const podStartTolerance = time.Minute

// annotatePod writes the deadline on a pod, or removes it if deadline is nil. It logs a
// failure: the annotation is informative.
func (r *Reconciler) annotatePod(ctx context.Context, pod *podcache.Pod, deadline *metav1.Time) {
	var value any
	if deadline != nil {
		value = deadline.UTC().Format(time.RFC3339)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationEndsAt: value}}})
	if err != nil {
		return
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
	if client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Info("Failed to annotate pod with its deadline", "namespace", pod.Namespace, "pod", pod.Name, "reason", err.Error())
	}
}

// annotatedPods are the pods that were annotated after their deadline was announced, by
// clock. It is empty after a restart, so that they are annotated again.
type annotatedPods struct {
	mu   sync.Mutex
	pods map[types.UID]sets.Set[types.UID]
}

// addIfAbsent adds a pod and reports whether it was absent.
func (a *annotatedPods) addIfAbsent(clockUID, pod types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pods == nil {
		a.pods = map[types.UID]sets.Set[types.UID]{}
	}
	if a.pods[clockUID] == nil {
		a.pods[clockUID] = sets.New[types.UID]()
	}
	absent := !a.pods[clockUID].Has(pod)
	a.pods[clockUID].Insert(pod)
	return absent
}

func (a *annotatedPods) remove(clockUID types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, clockUID)
}
