// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/owner"
)

// Reconciler keeps one WorkloadClock for each workload that ran.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale answer would do harm.
	Live client.Reader
	// Workloads knows the workloads and their pods.
	Workloads *WorkloadIndex
	// Stopper ends workloads.
	Stopper Stopper
	// Notices records what people are told.
	Notices notification.Recorder
	// StopLimiter keeps very many from being stopped at once.
	StopLimiter *StopLimiter
	// Events tells people what was done to their objects.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock

	stopBackoff   stopBackoff
	annotatedPods annotatedPods
	timeZones     timeZoneCache
}

// maxRequeueInterval is how long a clock is left alone at most, in machine time: a
// machine's own clock may be set, and policy time may step.
const maxRequeueInterval = time.Hour

// notReadyRequeue is when to look again, in machine time, at what will be known any moment, and
// is looked at then in any case.
const notReadyRequeue = time.Minute

// Reconcile implements reconcile.Reconciler for the clock of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	known, pods := r.Workloads.RootsAndPods(req.NamespacedName)
	w, err := r.observeWorkload(ctx, req, known, pods)
	if w == nil || err != nil {
		return reconcile.Result{}, err
	}
	if len(w.runningPods) == 0 && w.clock.Status.RunningSince != nil && !r.Workloads.IsComplete(req.NamespacedName) {
		return reconcile.Result{RequeueAfter: notReadyRequeue}, nil
	}
	decision, err := r.decide(ctx, w)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.applyDecision(ctx, w, decision); err != nil {
		return reconcile.Result{}, err
	}
	return r.requeueResult(w, decision), nil
}

// workload is a workload as it is seen now, with its clock.
type workload struct {
	*tenant
	clock *v1alpha1.WorkloadClock
	// roots are the objects that are the workload; more than one while one goes.
	roots []owner.Root
	// runningPods are its GPU pods that run.
	runningPods  []*podcache.Pod
	now          time.Time
	limits       timelimit.EffectiveLimits
	workloadType v1alpha1.WorkloadType
	utilization  timelimit.Utilization
	// grantedExtensions are those behind terms.Granted.
	grantedExtensions []*v1alpha1.Extension
	// stopDeferred tells that the brake keeps it from being stopped.
	stopDeferred bool
}

// observeWorkload is the one of the request; nil where there is nothing to keep time of.
func (r *Reconciler) observeWorkload(ctx context.Context, req reconcile.Request, known []owner.Root, pods []*podcache.Pod) (*workload, error) {
	w := &workload{roots: known, now: r.Clock.Now().Truncate(time.Second), clock: &v1alpha1.WorkloadClock{}}
	for _, pod := range pods {
		if pod.Running {
			w.runningPods = append(w.runningPods, pod)
		}
	}
	err := r.Client.Get(ctx, req.NamespacedName, w.clock)
	if client.IgnoreNotFound(err) != nil || err != nil && len(w.runningPods) == 0 {
		return nil, client.IgnoreNotFound(err)
	}
	missing := err != nil
	if w.tenant, err = r.lookUpTenant(ctx, req.Namespace); err != nil {
		return nil, err
	}
	if w.tenant == nil {
		return nil, r.pauseOrphanedClock(ctx, w)
	}
	if missing {
		err := r.createClock(ctx, req, w)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if err := r.reconcileIdentity(ctx, w); err != nil {
		return nil, err
	}
	w.limits, w.workloadType = w.tenant.effectiveLimits(w.now, w.runningPods, w.clock.Status.WorkloadType)
	if w.utilization, err = r.observeUtilization(ctx, w.runningPods); err != nil {
		return nil, err
	}
	w.grantedExtensions, err = r.listGrantedExtensions(ctx, w)
	return w, err
}

// createClock makes the clock.
func (r *Reconciler) createClock(ctx context.Context, req reconcile.Request, w *workload) error {
	w.clock = &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name},
		Spec:       v1alpha1.WorkloadClockSpec{Root: w.roots[0].Reference()},
	}
	if err := r.Client.Create(ctx, w.clock); err != nil {
		return fmt.Errorf("making clock %s: %w", req.NamespacedName, err)
	}
	return nil
}

// decide asks what follows.
func (r *Reconciler) decide(ctx context.Context, w *workload) (timelimit.Decision, error) {
	seen := timelimit.Observation{Running: len(w.runningPods) > 0, RunningSince: r.runningSince(w), Utilization: w.utilization}
	decision := timelimit.Decide(w.now, w.clock.Status, seen, w.limits)
	if !decision.Stopped {
		return decision, nil
	}
	permitted, err := r.StopLimiter.Allow(ctx, w.now)
	if err != nil || permitted {
		return decision, err
	}
	ctrl.LoggerFrom(ctx).Info("the brake keeps a workload from being stopped", "clock", w.clock.Name)
	w.stopDeferred = true
	decision.Stop, decision.Stopped = false, false
	decision.Status.Stopped, decision.Status.Deadline = w.clock.Status.Stopped, w.clock.Status.Deadline
	decision.Status.State = v1alpha1.ClockStateRunning
	decision.NextDecision = time.Time{}
	return decision, nil
}

// runningSince is when the first of the pods that run began, or the project, whichever
// is later: what ran before was nobody's to limit.
func (r *Reconciler) runningSince(w *workload) (since time.Time) {
	for _, pod := range w.runningPods {
		if at := pod.EffectiveStart(); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	if made := w.project.CreationTimestamp.Time; since.Before(made) {
		since = made
	}
	return r.toPolicyTime(since)
}

// toPolicyTime is the policy time of an instant of machine time that is known to the
// second. Nobody is charged for a step of policy time within it.
func (r *Reconciler) toPolicyTime(at time.Time) time.Time {
	return policytime.FromTimestamp(r.Clock, at)
}

// applyDecision does what was decided, in the order that a crash leaves right.
func (r *Reconciler) applyDecision(ctx context.Context, w *workload, d timelimit.Decision) error {
	if err := r.verifyClockCurrent(ctx, w, d); err != nil {
		return err
	}
	if err := r.recordWarnings(ctx, w, d); err != nil {
		return err
	}
	if d.Stopped {
		if err := r.recordStopNotice(ctx, w, d); err != nil {
			return err
		}
	}
	if d.Released {
		if err := r.releaseRoots(ctx, w); err != nil {
			return err
		}
	}
	r.annotatePods(ctx, w, d)
	before := w.clock.Status
	if err := r.updateClockStatus(ctx, w, d); err != nil {
		return err
	}
	r.recordEvents(ctx, w, before, d)
	if err := r.markExtensionsApplied(ctx, w, d); err != nil {
		return err
	}
	return r.stopRoots(ctx, w, d)
}

// updateClockStatus records the decision, where it changes anything.
func (r *Reconciler) updateClockStatus(ctx context.Context, w *workload, d timelimit.Decision) error {
	next := w.clock.DeepCopy()
	next.Status = d.Status
	r.setStatusDescription(w, d, next)
	if equality.Semantic.DeepEqual(w.clock.Status, next.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing clock %s/%s: %w", next.Namespace, next.Name, err)
	}
	w.clock = next
	return nil
}

// requeueResult is when to look at the workload next.
func (r *Reconciler) requeueResult(w *workload, d timelimit.Decision) reconcile.Result {
	next := maxRequeueInterval
	for _, at := range []time.Time{d.NextDecision, w.exemptUntil(w.now)} {
		if !at.IsZero() {
			next = min(next, max(r.Clock.RealUntil(at), time.Millisecond))
		}
	}
	if w.stopDeferred {
		next = min(next, stopLimiterRequeue)
	}
	if d.Stop {
		next = min(next, r.stopBackoff.remaining(w.clock.UID))
	}
	return reconcile.Result{RequeueAfter: next}
}
