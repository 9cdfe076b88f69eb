// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
	"sluice.dev/lifecycle/roots"
	"sluice.dev/lifecycle/stopping"
)

// Stopper ends workloads and lets them be started again: a stopping.Stopper.
type Stopper interface {
	Stop(ctx context.Context, target stopping.Target, until time.Time, why string) error
	Release(ctx context.Context, target stopping.Target) error
}

// flapping is how often a workload is started again before that is reported.
const flapping = 3

// Reasons of the condition Unstoppable.
const (
	reasonFlapping    = "StartedAgain"
	reasonUnsupported = "UnknownKind"
	reasonForbidden   = "Forbidden"
	reasonStopped     = "Stopped"
)

// stop carries out the stop that the clock records. What runs on is stopped again,
// less and less often.
func (r *Reconciler) stop(ctx context.Context, w *workload, d ending.Decision) error {
	if !d.Stop {
		r.tries.forget(w.clock.UID)
		return nil
	}
	if !r.tries.begin(w.clock.UID) {
		return nil
	}
	var until time.Time
	if d.Status.Stopped.Until != nil {
		until = d.Status.Stopped.Until.Time
	}
	var problems []error
	for _, root := range w.roots {
		err := r.Stopper.Stop(ctx, target(root), until, w.because(d))
		if errors.Is(err, stopping.ErrGone) {
			// Its pods may outlive it: what they belong to then is looked for anew.
			err = r.Grouping.Again(ctx, root)
		}
		problems = append(problems, err)
	}
	err := errors.Join(problems...)
	if reason := unstoppable(d, err); reason != "" {
		return r.report(ctx, w, reason, err)
	}
	return err
}

// unstoppable is why trying again does not help by itself; empty where it may.
func unstoppable(d ending.Decision, err error) string {
	switch {
	case errors.Is(err, stopping.ErrUnsupported):
		return reasonUnsupported
	case errors.Is(err, stopping.ErrForbidden):
		return reasonForbidden
	case err == nil && d.Status.Stopped.Times >= flapping:
		return reasonFlapping
	}
	return ""
}

// report says on the clock that the workload cannot be stopped, or not for long.
func (r *Reconciler) report(ctx context.Context, w *workload, reason string, problem error) error {
	message := fmt.Sprintf("something starts it again: it was stopped %d times; look for who does (an autoscaler, GitOps)", w.clock.Status.Stopped.Times)
	if problem != nil {
		message = problem.Error()
	}
	next := w.clock.DeepCopy()
	setCondition(&next.Status, v1alpha1.ConditionUnstoppable, true, reason, reasonStopped, message[:min(len(message), 1024)])
	if len(next.Status.Conditions) != len(w.clock.Status.Conditions) {
		r.event(w, corev1.EventTypeWarning, "Unstoppable", "Stop", "%s", message)
	}
	ctrl.LoggerFrom(ctx).Info("a workload cannot be stopped", "clock", w.clock.Name, "reason", message)
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing clock %s/%s: %w", next.Namespace, next.Name, err)
	}
	return nil
}

// release takes the mark off the workload, so that its owner may start it.
func (r *Reconciler) release(ctx context.Context, w *workload) error {
	list := w.roots
	if len(list) == 0 && w.clock.Status.RootUID != "" {
		list = []roots.Root{rootOf(w.clock)}
	}
	for _, root := range list {
		err := r.Stopper.Release(ctx, target(root))
		if err != nil && !errors.Is(err, stopping.ErrGone) && !errors.Is(err, stopping.ErrUnsupported) && !errors.Is(err, stopping.ErrForbidden) {
			return err
		}
	}
	return nil
}

func target(root roots.Root) stopping.Target {
	return stopping.Target{GroupVersionKind: root.GroupVersionKind, Namespace: root.Namespace, Name: root.Name, UID: root.UID}
}

// The pauses between two tries to stop the same workload, in machine time.
const (
	firstPause   = 30 * time.Second
	longestPause = time.Hour
)

// attempts knows when the next try to stop a workload is due. A restart forgets
// that, and tries at once.
type attempts struct {
	mu   sync.Mutex
	next map[types.UID]attempt
}

type attempt struct {
	at    time.Time
	pause time.Duration
}

// begin tells whether it is time for a try, and then counts it.
func (a *attempts) begin(clockUID types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := clock.MachineNow()
	last := a.next[clockUID]
	if now.Before(last.at) {
		return false
	}
	pause := min(max(2*last.pause, firstPause), longestPause)
	if a.next == nil {
		a.next = map[types.UID]attempt{}
	}
	a.next[clockUID] = attempt{now.Add(pause), pause}
	return true
}

// until is how long to wait for the next try.
func (a *attempts) until(clockUID types.UID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(time.Millisecond, a.next[clockUID].at.Sub(clock.MachineNow()))
}

func (a *attempts) forget(clockUID types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.next, clockUID)
}
