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

// Stopper stops workloads and releases them. suspend.Stopper implements it.
type Stopper interface {
	Stop(ctx context.Context, target suspend.Target, until time.Time, why string) error
	Release(ctx context.Context, target suspend.Target) error
}

// restartReportThreshold is the number of stops above which restarts are reported.
const restartReportThreshold = 3

// Reasons of the condition Unstoppable.
const (
	reasonFlapping    = "RestartedAfterStop"
	reasonUnsupported = v1alpha1.ReasonUnknownKind
	reasonForbidden   = "Forbidden"
	reasonStopped     = "Stopped"
)

// unstoppableReason returns why another attempt does not help, or "" if it can.
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

// reportUnstoppable sets the condition Unstoppable and records an event when it is new.
func (r *Reconciler) reportUnstoppable(ctx context.Context, w *workload, reason string, problem error) error {
	message := fmt.Sprintf("The workload was stopped %d times and started again each time. "+
		"Find what starts it, such as an autoscaler or a GitOps tool", w.clock.Status.Stopped.Times)
	if problem != nil {
		message = problem.Error()
	}
	next := w.clock.DeepCopy()
	setCondition(&next.Status, v1alpha1.ConditionUnstoppable, true, reason, reasonStopped, message[:min(len(message), 1024)])
	if len(next.Status.Conditions) != len(w.clock.Status.Conditions) {
		r.recordEvent(w, corev1.EventTypeWarning, "Unstoppable", "Stop", message)
	}
	ctrl.LoggerFrom(ctx).Info("Failed to stop workload for good", "clock", w.clock.Name, "reason", message)
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("update clock %s/%s: %w", next.Namespace, next.Name, err)
	}
	return nil
}

func stopTargetOf(root owner.Root) suspend.Target {
	return suspend.Target{GroupVersionKind: root.GroupVersionKind, Namespace: root.Namespace, Name: root.Name, UID: root.UID}
}

// The pauses between two attempts to stop the same workload, in machine time.
const (
	initialStopBackoff = 30 * time.Second
	maxStopBackoff     = time.Hour
)

// stopBackoff holds the time of the next attempt to stop each workload, by the UID of its
// clock. It is empty after a restart, so that the first attempt comes at once.
type stopBackoff struct {
	mu      sync.Mutex
	entries map[types.UID]stopBackoffEntry
}

type stopBackoffEntry struct {
	nextAttempt time.Time
	delay       time.Duration
}

// tryAcquire reports whether an attempt is due, and schedules the next one if it is.
func (b *stopBackoff) tryAcquire(clockUID types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := policytime.MachineNow()
	last := b.entries[clockUID]
	if now.Before(last.nextAttempt) {
		return false
	}
	delay := min(max(2*last.delay, initialStopBackoff), maxStopBackoff)
	if b.entries == nil {
		b.entries = map[types.UID]stopBackoffEntry{}
	}
	b.entries[clockUID] = stopBackoffEntry{now.Add(delay), delay}
	return true
}

// remaining returns the time until the next attempt.
func (b *stopBackoff) remaining(clockUID types.UID) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(time.Millisecond, b.entries[clockUID].nextAttempt.Sub(policytime.MachineNow()))
}

func (b *stopBackoff) remove(clockUID types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, clockUID)
}

var (
	workloadStops = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_workload_stops_total",
		Help: "Stopped workloads, by reason: MaxRuntime, Idle, StartTimeout.",
	}, []string{"reason"})
	deadlineLag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_workload_deadline_lag_seconds",
		Help:    "Time between the deadline of a workload and its stop, in policy time.",
		Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600},
	})
	stopLimiterEngaged = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_stop_limiter_engaged",
		Help: "1 while the stop limiter is engaged: no workload is stopped until an administrator releases it.",
	})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global
	metrics.Registry.MustRegister(workloadStops, deadlineLag, stopLimiterEngaged)
}
