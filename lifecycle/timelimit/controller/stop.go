// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// Stopper ends workloads and lets them be started again: a stopping.Stopper.
type Stopper interface {
	Stop(ctx context.Context, target suspend.Target, until time.Time, why string) error
	Release(ctx context.Context, target suspend.Target) error
}

// restartReportThreshold is how often a workload is started again before that is reported.
const restartReportThreshold = 3

// Reasons of the condition Unstoppable.
const (
	reasonFlapping    = "StartedAgain"
	reasonUnsupported = "UnknownKind"
	reasonForbidden   = "Forbidden"
	reasonStopped     = "Stopped"
)

// stopRoots carries out the stop that the clock records. What runs on is stopped again,
// less and less often.
func (r *Reconciler) stopRoots(ctx context.Context, w *workload, d timelimit.Decision) error {
	if !d.Stop {
		r.stopBackoff.remove(w.clock.UID)
		return nil
	}
	if !r.stopBackoff.tryAcquire(w.clock.UID) {
		return nil
	}
	var until time.Time
	if d.Status.Stopped.Until != nil {
		until = d.Status.Stopped.Until.Time
	}
	var problems []error
	for _, root := range w.roots {
		err := r.Stopper.Stop(ctx, stopTargetOf(root), until, w.stopMessage(d))
		if errors.Is(err, suspend.ErrGone) {
			// Its pods may outlive it: what they belong to then is looked for anew.
			err = r.Workloads.ResolveAgain(ctx, root)
		}
		problems = append(problems, err)
	}
	err := errors.Join(problems...)
	if reason := unstoppableReason(d, err); reason != "" {
		return r.reportUnstoppable(ctx, w, reason, err)
	}
	return err
}

// unstoppableReason is why trying again does not help by itself; empty where it may.
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

// reportUnstoppable says on the clock that the workload cannot be stopped, or not for long.
func (r *Reconciler) reportUnstoppable(ctx context.Context, w *workload, reason string, problem error) error {
	message := fmt.Sprintf("something starts it again: it was stopped %d times; look for who does (an autoscaler, GitOps)", w.clock.Status.Stopped.Times)
	if problem != nil {
		message = problem.Error()
	}
	next := w.clock.DeepCopy()
	setCondition(&next.Status, v1alpha1.ConditionUnstoppable, true, reason, reasonStopped, message[:min(len(message), 1024)])
	if len(next.Status.Conditions) != len(w.clock.Status.Conditions) {
		r.recordEvent(w, corev1.EventTypeWarning, "Unstoppable", "Stop", "%s", message)
	}
	ctrl.LoggerFrom(ctx).Info("a workload cannot be stopped", "clock", w.clock.Name, "reason", message)
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing clock %s/%s: %w", next.Namespace, next.Name, err)
	}
	return nil
}

// releaseRoots takes the mark off the workload, so that its owner may start it.
func (r *Reconciler) releaseRoots(ctx context.Context, w *workload) error {
	list := w.roots
	if len(list) == 0 && w.clock.Status.RootUID != "" {
		list = []owner.Root{rootOfClock(w.clock)}
	}
	for _, root := range list {
		err := r.Stopper.Release(ctx, stopTargetOf(root))
		if err != nil && !errors.Is(err, suspend.ErrGone) && !errors.Is(err, suspend.ErrUnsupported) && !errors.Is(err, suspend.ErrForbidden) {
			return err
		}
	}
	return nil
}

func stopTargetOf(root owner.Root) suspend.Target {
	return suspend.Target{GroupVersionKind: root.GroupVersionKind, Namespace: root.Namespace, Name: root.Name, UID: root.UID}
}

// The pauses between two tries to stop the same workload, in machine time.
const (
	initialStopBackoff = 30 * time.Second
	maxStopBackoff     = time.Hour
)

// stopBackoff knows when the next try to stop a workload is due. A restart forgets
// that, and tries at once.
type stopBackoff struct {
	mu      sync.Mutex
	entries map[types.UID]stopBackoffEntry
}

type stopBackoffEntry struct {
	nextAttempt time.Time
	delay       time.Duration
}

// tryAcquire tells whether it is time for a try, and then counts it.
func (a *stopBackoff) tryAcquire(clockUID types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := policytime.MachineNow()
	last := a.entries[clockUID]
	if now.Before(last.nextAttempt) {
		return false
	}
	pause := min(max(2*last.delay, initialStopBackoff), maxStopBackoff)
	if a.entries == nil {
		a.entries = map[types.UID]stopBackoffEntry{}
	}
	a.entries[clockUID] = stopBackoffEntry{now.Add(pause), pause}
	return true
}

// remaining is how long to wait for the next try.
func (a *stopBackoff) remaining(clockUID types.UID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(time.Millisecond, a.entries[clockUID].nextAttempt.Sub(policytime.MachineNow()))
}

func (a *stopBackoff) remove(clockUID types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, clockUID)
}

var (
	workloadStops = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_workload_stops_total",
		Help: "Workloads that were stopped, by reason: MaxRuntime, Idle.",
	}, []string{"reason"})
	deadlineLag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_workload_deadline_lag_seconds",
		Help:    "How long after its deadline a workload was stopped, in policy time.",
		Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600},
	})
	stopLimiterEngaged = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_brake_engaged",
		Help: "1 while the brake keeps all workloads from being stopped, until an administrator releases it.",
	})
)

func init() { //nolint:gochecknoinits // how controller-runtime's registry is filled
	metrics.Registry.MustRegister(workloadStops, deadlineLag, stopLimiterEngaged)
}
