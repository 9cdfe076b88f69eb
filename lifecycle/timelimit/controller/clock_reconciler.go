// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// Reconciler maintains one WorkloadClock for each workload that held GPUs, and stops the workload
// at its time limit.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale read would do harm.
	Live client.Reader
	// Workloads maps pods to workloads.
	Workloads *WorkloadIndex
	// Stopper stops workloads.
	Stopper Stopper
	// RetryInterval is the pause before the second attempt to stop a workload, in machine time. Each
	// further pause is twice as long, up to maxRetryPauses of these.
	RetryInterval time.Duration
	// Notices records warnings and stops as Notices.
	Notices notification.Recorder
	// Activity reports how long pods used their GPUs; nil if it is not measured.
	Activity PodActivity
	// StopLimiter prevents mass stops.
	StopLimiter *StopLimiter
	// Events records events on workloads.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock

	stopBackoff   stopBackoff
	annotatedPods annotatedPods
	heldPods      heldPods
	timeZones     timeZoneCache
}

const (
	// maxRequeueInterval is the longest pause between two reconciliations, in machine time.
	// Machine time can be set, and policy time can step.
	maxRequeueInterval = time.Hour
	// notReadyRequeue is the retry interval, in machine time, for what also causes a request
	// when it becomes known.
	notReadyRequeue = time.Minute
)

// Reconcile implements reconcile.Reconciler for a WorkloadClock. After a crash between any
// two steps the next call repeats or completes them: the Notices come before the clock's
// status, and the stop comes last.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := r.observeWorkload(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if w == nil {
		r.Workloads.forgetEndedPod(req.NamespacedName)
		r.heldPods.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if w.seemsEnded() && !w.complete {
		r.Workloads.enqueueWhenComplete(req.NamespacedName)
		return reconcile.Result{RequeueAfter: notReadyRequeue}, nil
	}
	decision, err := r.decide(ctx, w)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, reconcileStep := range []func(context.Context, *workload, timelimit.Decision) error{
		r.verifyClockCurrent,
		r.reconcileNotices,
		r.reconcileRelease,
		r.reconcilePodDeadlines,
		r.reconcileStatus,
		r.reconcileExtensions,
		r.reconcileStop,
	} {
		if err := reconcileStep(ctx, w, decision); err != nil {
			return reconcile.Result{}, err
		}
	}
	if len(w.runningPods) == 0 {
		r.Workloads.forgetEndedPod(req.NamespacedName)
	}
	return r.requeueResult(w, decision), nil
}

// decide calls timelimit.Decide, and defers a stop that was brought forward and that the stop
// limiter does not allow. Until it does, a workload of a suspended project runs on as if the project
// were not suspended.
func (r *Reconciler) decide(ctx context.Context, w *workload) (timelimit.Decision, error) {
	pausedUntil, err := inventory.PausedUntil(ctx, r.Client, w.now)
	if err != nil {
		return timelimit.Decision{}, err
	}
	observed := timelimit.Observation{
		Running: len(w.runningPods) > 0, RunningSince: r.runningSince(w), StartingSince: r.startingSince(w),
		Completed: w.completed, Missing: w.missing, HasPods: w.hasPods, Utilization: w.utilization,
		ProjectEnd: w.end(), HasPodsToEnd: len(w.allPods()) > 0,
	}
	pool, err := r.startPool(ctx, w)
	if err != nil {
		return timelimit.Decision{}, err
	}
	observed.PausedUntil = pausedUntil
	if pool != nil && w.heldPods()[0].Node != "" { // an outage is one of what nodes need: images and volumes
		observed.PausedUntil = policytime.Later(pausedUntil, holdEnd(pool))
	}
	decision := timelimit.Decide(w.now, w.clock.Status, observed, w.limits)
	if decision.Stopped && decision.Status.Stopped.Reason == v1alpha1.EndStartTimeout {
		if decision, err = r.decideStartTimeout(ctx, w, pool, observed, decision); err != nil {
			return decision, err
		}
	}
	if !w.isStoppedEarly(decision) {
		return decision, nil
	}
	allowed, err := r.StopLimiter.Allow(ctx, w.department.Name, w.now)
	if err != nil || allowed {
		return decision, err
	}
	ctrl.LoggerFrom(ctx).Info("Stop limiter deferred the stop of a workload", "clock", w.clock.Name)
	w.stopDeferred = true
	if decision.Status.Stopped.Reason == v1alpha1.EndProjectSuspended {
		observed.ProjectEnd = ""
		if decision = timelimit.Decide(w.now, w.clock.Status, observed, w.limits); !w.isStoppedEarly(decision) {
			return decision, nil
		}
	}
	decision = w.withoutStop(decision)
	decision.Status.State = v1alpha1.ClockStateRunning
	return decision, nil
}

// withoutStop returns the decision without its new stop, which is decided again at the next reconciliation.
func (w *workload) withoutStop(d timelimit.Decision) timelimit.Decision {
	w.stopDeferred = true
	d.Stop, d.Stopped, d.NextDecision = false, false, time.Time{}
	d.Status.Stopped, d.Status.Deadline, d.Status.State = w.clock.Status.Stopped, w.clock.Status.Deadline, w.clock.Status.State
	return d
}

// isStoppedEarly reports whether a decision stops the workload at an end that was brought forward.
func (w *workload) isStoppedEarly(d timelimit.Decision) bool {
	return d.Stopped && isBroughtForward(w.project, &d.Status, d.Status.Stopped.Reason, w.now)
}

// reconcileNotices records the Notices of the warnings and of a new stop.
func (r *Reconciler) reconcileNotices(ctx context.Context, w *workload, d timelimit.Decision) error {
	announcements := w.warningAnnouncements(d)
	if d.Stopped {
		announcements = append(announcements, w.stopAnnouncement(d))
	}
	recipients := r.Notices.WorkloadRecipients(w.project, w.department, d.Status.CreatedBy)
	if w.end() != "" { // the owners get one mail about the project
		recipients = r.Notices.CreatorRecipients(w.project, w.department, d.Status.CreatedBy)
	}
	if d.Stopped && d.Status.Stopped.Reason == v1alpha1.EndProjectSuspended {
		recipients = notification.WithoutOwners(recipients, w.project)
	}
	for _, a := range announcements {
		if _, err := r.Notices.Record(ctx, a, recipients); err != nil {
			return err
		}
	}
	return nil
}

// reconcileRelease removes the stop annotation from the workload when its stop ended.
func (r *Reconciler) reconcileRelease(ctx context.Context, w *workload, d timelimit.Decision) error {
	if !d.Released {
		return nil
	}
	roots := w.roots
	if len(roots) == 0 && w.clock.Status.RootUID != "" {
		roots = []owner.Root{rootOfClock(w.clock)}
	}
	for _, root := range roots {
		err := r.Stopper.Release(ctx, stopTargetOf(root))
		if err != nil && !errors.Is(err, suspend.ErrGone) && !errors.Is(err, suspend.ErrUnsupported) && !errors.Is(err, suspend.ErrForbidden) {
			return err
		}
	}
	return nil
}

// reconcilePodDeadlines annotates running pods with their deadline: all of them when it
// changes, and those that started later. Users and programs read the annotation. It is
// written before the clock, because the next call sees a change only in the clock. Pods
// that are being stopped keep their annotation.
func (r *Reconciler) reconcilePodDeadlines(ctx context.Context, w *workload, d timelimit.Decision) error {
	if d.Stop {
		return nil
	}
	deadline, previous := announcedDeadline(&d.Status), announcedDeadline(&w.clock.Status)
	changed := !deadline.Equal(previous) || w.clock.Status.Stopped != nil
	if changed {
		r.annotatedPods.remove(w.clock.UID)
		for _, pod := range w.runningPods {
			r.annotatePod(ctx, pod, deadline)
		}
	}
	if deadline == nil {
		return nil
	}
	since := d.Status.Deadline.AnnouncedAt.Add(-podStartTolerance)
	for _, pod := range w.runningPods {
		if r.toPolicyTime(pod.EffectiveStart()).Before(since) || !r.annotatedPods.addIfAbsent(w.clock.UID, pod.UID) {
			continue
		}
		if !changed {
			r.annotatePod(ctx, pod, deadline)
		}
	}
	return nil
}

// reconcileStatus writes the clock's status if it changed, and then records events. Each write also has
// the present GPU usage.
func (r *Reconciler) reconcileStatus(ctx context.Context, w *workload, d timelimit.Decision) error {
	previous, next := w.clock.Status, w.clock.DeepCopy()
	next.Status = d.Status
	r.setDisplayFields(w, d, &next.Status)
	usage := w.recordedGPUUsage()
	next.Status.GPUUsage = usage
	holds := r.gpuHolds(w, usage)
	if !equality.Semantic.DeepEqual(w.recorded, next.Status) || isGPUUsageDue(usage, &w.sample, holds, w.now) {
		next.Status.GPUUsage = r.countGPUUsage(w, usage, holds)
		if err := r.Client.Status().Update(ctx, next); err != nil {
			return fmt.Errorf("update clock %s/%s: %w", next.Namespace, next.Name, err)
		}
		r.heldPods.counted(client.ObjectKeyFromObject(next))
		w.clock = next
	}
	r.recordEvents(ctx, w, previous, d)
	return nil
}

// reconcileExtensions marks the extensions that the clock holds as applied.
func (r *Reconciler) reconcileExtensions(ctx context.Context, w *workload, d timelimit.Decision) error {
	for _, e := range w.grantedExtensions {
		if !slices.ContainsFunc(d.Status.Extensions, func(c v1alpha1.ClockExtension) bool { return c.Name == e.Name }) {
			continue
		}
		next := e.DeepCopy()
		message := "The workload may run longer by this time"
		if d.Status.Deadline != nil {
			next.Status.NewEnd = &d.Status.Deadline.At
			message = "The workload ends at " + d.Status.Deadline.At.In(w.zone).Format(localTimeFormat)
		}
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: reasonExtended, Message: message,
		})
		if err := r.Client.Status().Update(ctx, next); err != nil {
			return fmt.Errorf("mark extension %s/%s as applied: %w", e.Namespace, e.Name, err)
		}
	}
	return nil
}

// requeueResult returns when to reconcile the clock again.
func (r *Reconciler) requeueResult(w *workload, d timelimit.Decision) reconcile.Result {
	next := maxRequeueInterval
	for _, at := range []time.Time{d.NextDecision, w.exemptUntil(w.now)} {
		if !at.IsZero() {
			next = min(next, max(r.Clock.RealUntil(at), time.Millisecond))
		}
	}
	if w.requeueLimit > 0 {
		next = min(next, w.requeueLimit)
	}
	if w.stopDeferred {
		next = min(next, stopLimiterRequeue)
	}
	if d.Stop {
		next = min(next, r.stopBackoff.remaining(w.clock.UID))
	}
	return reconcile.Result{RequeueAfter: next}
}
