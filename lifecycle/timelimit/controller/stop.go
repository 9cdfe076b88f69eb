// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// Stopper stops workloads and releases them, evicts pods, and recognizes workloads that their
// users paused. suspend.Stopper implements it.
type Stopper interface {
	Stop(ctx context.Context, target suspend.Target, until time.Time, why string) error
	Release(ctx context.Context, target suspend.Target) error
	PutBack(ctx context.Context, target suspend.Target, now time.Time, ownFault bool) (until time.Time, first bool, err error)
	EvictPod(ctx context.Context, pod suspend.Target, gracePeriod *int64, why string) error
	IsPaused(ctx context.Context, object *unstructured.Unstructured) (bool, error)
}

// The further attempts to stop a workload whose pods run on: by the stop action of its kind,
// then by evictions of its pods as well.
const (
	maxActionRetries = 2
	maxEvictions     = 3
)

// reconcileStop stops the workload if the clock records a stop. While its pods run on, it
// repeats the stop action with growing pauses, then evicts the pods, and then reports the
// workload as unstoppable. Controllers ignore the stop action on an object that is being deleted
// and held by a finalizer: then it also stops what the object controls, and evicts at once. It records each further attempt before it makes it, so that a
// restart repeats none.
func (r *Reconciler) reconcileStop(ctx context.Context, w *workload, d timelimit.Decision) error {
	if !d.Stop {
		r.stopBackoff.remove(w.clock.UID)
		return nil
	}
	due, repeated := r.stopBackoff.tryAcquire(w.clock.UID, r.RetryInterval)
	if !due {
		return nil
	}
	if w.isReplacedByController(&d.Status) {
		return r.reportUnstoppable(ctx, w, d, reasonFlapping, nil)
	}
	undead, unread := r.hasDeletedRoot(ctx, w)
	evict, exhausted := false, false
	if repeated || undead && w.clock.Status.Stopped.Retries == 0 {
		terminating, err := r.isTerminating(ctx, w)
		if err != nil {
			return err
		}
		exhausted = !terminating && w.clock.Status.Stopped.Retries >= maxActionRetries+maxEvictions
		if !terminating && !exhausted {
			if err := r.recordRetry(ctx, w, undead); err != nil {
				return err
			}
			evict = w.clock.Status.Stopped.Retries > maxActionRetries
		}
	}
	err := errors.Join(unread, r.stopRoots(ctx, w, d))
	if undead {
		err = errors.Join(err, r.stopOwnersBelowRoot(ctx, w, d))
	}
	reason := unstoppableReason(d, err)
	switch {
	case reason != "": // evictions would only restart its pods
	case exhausted:
		reason = reasonNoEffect
	case evict:
		err = errors.Join(err, r.evictPods(ctx, w, w.stopMessage(d)))
	}
	if reason != "" {
		return r.reportUnstoppable(ctx, w, d, reason, err)
	}
	return err
}

// stopRoots performs the stop action on the workload's roots.
func (r *Reconciler) stopRoots(ctx context.Context, w *workload, d timelimit.Decision) error {
	var problems []error
	for _, root := range w.roots {
		err := r.Stopper.Stop(ctx, stopTargetOf(root), stopEnd(d), w.stopMessage(d))
		if errors.Is(err, suspend.ErrGone) {
			// Its pods can outlive it. They may have another root now.
			err = r.Workloads.ResolveAgain(ctx, root)
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func stopTargetOf(root owner.Root) suspend.Target {
	return suspend.Target{GroupVersionKind: root.GroupVersionKind, Namespace: root.Namespace, Name: root.Name, UID: root.UID}
}

// isReplacedByController reports whether the workload is a pod whose controller cannot be stopped
// and replaces it. Another deletion would only restart it.
func (w *workload) isReplacedByController(s *v1alpha1.WorkloadClockStatus) bool {
	return s.Stopped.Times >= restartReportThreshold && slices.ContainsFunc(w.roots, func(root owner.Root) bool {
		return root.GroupVersionKind == podKind && slices.ContainsFunc(w.allPods(), func(pod *podcache.Pod) bool {
			return pod.UID == root.UID && pod.Controller.UID != ""
		})
	})
}

// hasDeletedRoot reports whether a root other than a pod is being deleted. A root that cannot be
// read does not hold up the stop.
func (r *Reconciler) hasDeletedRoot(ctx context.Context, w *workload) (bool, error) {
	for _, root := range w.roots {
		if root.GroupVersionKind == podKind {
			continue
		}
		if object, err := r.getRoot(ctx, root); err != nil || object != nil && object.GetDeletionTimestamp() != nil {
			return err == nil, err
		}
	}
	return false, nil
}

// stopOwnersBelowRoot stops the objects between the pods and a root that is being deleted, such as
// the ReplicaSets of a Deployment. Their controllers would replace evicted pods.
func (r *Reconciler) stopOwnersBelowRoot(ctx context.Context, w *workload, d timelimit.Decision) error {
	owners, err := r.Workloads.ownersBelowRoot(ctx, w.allPods())
	problems := []error{err}
	for _, o := range owners {
		if err := r.Stopper.Stop(ctx, stopTargetOf(o), stopEnd(d), w.stopMessage(d)); !errors.Is(err, suspend.ErrGone) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// stopEnd returns the policy time until which a workload is stopped; the zero time means without end.
func stopEnd(d timelimit.Decision) time.Time {
	if until := d.Status.Stopped.Until; until != nil {
		return until.Time
	}
	return time.Time{}
}

// recordRetry counts another attempt in the clock. For an undead root it leaves out the attempts
// by the stop action alone.
func (r *Reconciler) recordRetry(ctx context.Context, w *workload, undead bool) error {
	next := w.clock.DeepCopy()
	next.Status.Stopped.Retries++
	if undead {
		next.Status.Stopped.Retries = max(next.Status.Stopped.Retries, maxActionRetries+1)
	}
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("record another attempt to stop in clock %s/%s: %w", next.Namespace, next.Name, err)
	}
	w.clock = next
	return nil
}

// maxTerminationGrace is the longest rest of a pod's grace period, in machine time, for which a
// stop waits. The author chooses the grace period; an eviction shortens a longer rest to this.
const maxTerminationGrace = time.Hour

// isTerminating reports whether one of the pods ends within its grace period, so that the stop
// has an effect. Some controllers terminate one pod after the other.
func (r *Reconciler) isTerminating(ctx context.Context, w *workload) (bool, error) {
	for _, pod := range w.allPods() {
		if !pod.Deleting {
			continue
		}
		left, gone, err := r.remainingGrace(ctx, pod)
		if err != nil {
			return false, err
		}
		if gone || left > 0 && left <= maxTerminationGrace {
			return true, nil
		}
	}
	return false, nil
}

// remainingGrace returns the rest of a terminating pod's grace period, and whether the pod is
// gone.
func (r *Reconciler) remainingGrace(ctx context.Context, pod *podcache.Pod) (left time.Duration, gone bool, err error) {
	var object metav1.PartialObjectMetadata
	object.SetGroupVersionKind(podKind)
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, &object)
	switch {
	case apierrors.IsNotFound(err), err == nil && object.UID != pod.UID:
		return 0, true, nil
	case err != nil:
		return 0, false, fmt.Errorf("get pod %s/%s: %w", pod.Namespace, pod.Name, err)
	case object.DeletionTimestamp == nil:
		return 0, false, nil
	}
	return object.DeletionTimestamp.Sub(policytime.MachineNow()), false, nil
}

// evictPods evicts the pods.
func (r *Reconciler) evictPods(ctx context.Context, w *workload, message string) error {
	var problems []error
	for _, pod := range w.allPods() {
		target := suspend.Target{
			GroupVersionKind: podKind, Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		}
		var gracePeriod *int64
		if pod.Deleting {
			gracePeriod = ptr.To(int64(maxTerminationGrace / time.Second))
		}
		problems = append(problems, r.Stopper.EvictPod(ctx, target, gracePeriod, message))
	}
	return errors.Join(problems...)
}

// maxRetryPauses is the longest pause between two attempts to stop the same workload, in first
// pauses.
const maxRetryPauses = 20

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

// tryAcquire reports whether an attempt is due, and whether this process made one before. It
// schedules the next one if it is due, after the first pause or twice the last one.
func (b *stopBackoff) tryAcquire(clockUID types.UID, first time.Duration) (due, repeated bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := policytime.MachineNow()
	last, repeated := b.entries[clockUID]
	if now.Before(last.nextAttempt) {
		return false, repeated
	}
	delay := min(max(2*last.delay, first), maxRetryPauses*first)
	if b.entries == nil {
		b.entries = map[types.UID]stopBackoffEntry{}
	}
	b.entries[clockUID] = stopBackoffEntry{now.Add(delay), delay}
	return true, repeated
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
