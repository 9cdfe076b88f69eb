// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

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

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
	"sluice.dev/lifecycle/gpupods"
	"sluice.dev/lifecycle/notices"
	"sluice.dev/lifecycle/roots"
)

// Reconciler keeps one WorkloadClock for each workload that ran.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale answer would do harm.
	Live client.Reader
	// Grouping knows the workloads and their pods.
	Grouping *Grouping
	// Stopper ends workloads.
	Stopper Stopper
	// Notices records what people are told.
	Notices notices.Recorder
	// Brake keeps very many from being stopped at once.
	Brake *Brake
	// Events tells people what was done to their objects.
	Events events.EventRecorder
	// Clock is policy time.
	Clock clock.Clock

	tries  attempts
	marked marks
	zones  zones
}

// longestSleep is how long a clock is left alone at most, in machine time: a
// machine's own clock may be set, and policy time may step.
const longestSleep = time.Hour

// soon is when to look again, in machine time, at what will be known any moment, and
// is looked at then in any case.
const soon = time.Minute

// Reconcile implements reconcile.Reconciler for the clock of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	known, pods := r.Grouping.Of(req.NamespacedName)
	w, err := r.workload(ctx, req, known, pods)
	if w == nil || err != nil {
		return reconcile.Result{}, err
	}
	if len(w.running) == 0 && w.clock.Status.RunningSince != nil && !r.Grouping.Complete(req.NamespacedName) {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	decision, err := r.decide(ctx, w)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.carryOut(ctx, w, decision); err != nil {
		return reconcile.Result{}, err
	}
	return r.again(w, decision), nil
}

// workload is a workload as it is seen now, with its clock.
type workload struct {
	*tenant
	clock *v1alpha1.WorkloadClock
	// roots are the objects that are the workload; more than one while one goes.
	roots []roots.Root
	// running are its GPU pods that run.
	running []*gpupods.Pod
	now     time.Time
	terms   ending.Terms
	kind    v1alpha1.WorkloadType
	use     ending.Use
	// extensions are those behind terms.Granted.
	extensions []*v1alpha1.Extension
	// held tells that the brake keeps it from being stopped.
	held bool
}

// workload is the one of the request; nil where there is nothing to keep time of.
func (r *Reconciler) workload(ctx context.Context, req reconcile.Request, known []roots.Root, pods []*gpupods.Pod) (*workload, error) {
	w := &workload{roots: known, now: r.Clock.Now().Truncate(time.Second), clock: &v1alpha1.WorkloadClock{}}
	for _, pod := range pods {
		if pod.Running {
			w.running = append(w.running, pod)
		}
	}
	err := r.Client.Get(ctx, req.NamespacedName, w.clock)
	if client.IgnoreNotFound(err) != nil || err != nil && len(w.running) == 0 {
		return nil, client.IgnoreNotFound(err)
	}
	missing := err != nil
	if w.tenant, err = r.tenant(ctx, req.Namespace); err != nil {
		return nil, err
	}
	if w.tenant == nil {
		return nil, r.leave(ctx, w)
	}
	if missing {
		err := r.begin(ctx, req, w)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if err := r.identify(ctx, w); err != nil {
		return nil, err
	}
	w.terms, w.kind = w.tenant.terms(w.now, w.running, w.clock.Status.WorkloadType)
	if w.use, err = r.use(ctx, w.running); err != nil {
		return nil, err
	}
	w.extensions, err = r.granted(ctx, w)
	return w, err
}

// begin makes the clock.
func (r *Reconciler) begin(ctx context.Context, req reconcile.Request, w *workload) error {
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
func (r *Reconciler) decide(ctx context.Context, w *workload) (ending.Decision, error) {
	seen := ending.Seen{Running: len(w.running) > 0, Since: r.since(w), Use: w.use}
	decision := ending.Decide(w.now, w.clock.Status, seen, w.terms)
	if !decision.Stopped {
		return decision, nil
	}
	permitted, err := r.Brake.Permits(ctx, w.now)
	if err != nil || permitted {
		return decision, err
	}
	ctrl.LoggerFrom(ctx).Info("the brake keeps a workload from being stopped", "clock", w.clock.Name)
	w.held = true
	decision.Stop, decision.Stopped = false, false
	decision.Status.Stopped, decision.Status.Deadline = w.clock.Status.Stopped, w.clock.Status.Deadline
	decision.Status.State = v1alpha1.ClockStateRunning
	decision.Next = time.Time{}
	return decision, nil
}

// since is when the first of the pods that run began, or the project, whichever
// is later: what ran before was nobody's to limit.
func (r *Reconciler) since(w *workload) (since time.Time) {
	for _, pod := range w.running {
		if at := pod.Began(); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	if made := w.project.CreationTimestamp.Time; since.Before(made) {
		since = made
	}
	return r.notBefore(since)
}

// notBefore is the policy time of an instant of machine time that is known to the
// second. Nobody is charged for a step of policy time within it.
func (r *Reconciler) notBefore(at time.Time) time.Time { return clock.FromSecond(r.Clock, at) }

// carryOut does what was decided, in the order that a crash leaves right.
func (r *Reconciler) carryOut(ctx context.Context, w *workload, d ending.Decision) error {
	if err := r.current(ctx, w, d); err != nil {
		return err
	}
	if err := r.warn(ctx, w, d); err != nil {
		return err
	}
	if d.Stopped {
		if err := r.announceStop(ctx, w, d); err != nil {
			return err
		}
	}
	if d.Released {
		if err := r.release(ctx, w); err != nil {
			return err
		}
	}
	r.mark(ctx, w, d)
	before := w.clock.Status
	if err := r.write(ctx, w, d); err != nil {
		return err
	}
	r.tell(ctx, w, before, d)
	if err := r.markApplied(ctx, w, d); err != nil {
		return err
	}
	return r.stop(ctx, w, d)
}

// write records the decision, where it changes anything.
func (r *Reconciler) write(ctx context.Context, w *workload, d ending.Decision) error {
	next := w.clock.DeepCopy()
	next.Status = d.Status
	r.describe(w, d, next)
	if equality.Semantic.DeepEqual(w.clock.Status, next.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing clock %s/%s: %w", next.Namespace, next.Name, err)
	}
	w.clock = next
	return nil
}

// again is when to look at the workload next.
func (r *Reconciler) again(w *workload, d ending.Decision) reconcile.Result {
	next := longestSleep
	for _, at := range []time.Time{d.Next, w.sparedUntil(w.now)} {
		if !at.IsZero() {
			next = min(next, max(r.Clock.RealUntil(at), time.Millisecond))
		}
	}
	if w.held {
		next = min(next, brakeLook)
	}
	if d.Stop {
		next = min(next, r.tries.until(w.clock.UID))
	}
	return reconcile.Result{RequeueAfter: next}
}
