// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// clockRetention is the time for which a clock is kept after its workload was deleted, in policy time. That of a workload which held
// less than a GPU for briefGPUTime is kept for resetAfter, in which a later workload can continue it.
const (
	clockRetention = 30 * 24 * time.Hour
	briefGPUTime   = time.Minute
)

// retentionInterval is the interval of the search for deleted workloads, in machine time.
const retentionInterval = time.Hour

// Start deletes the clocks of deleted workloads after clockRetention, until ctx ends. It
// implements manager.Runnable.
func (r *Reconciler) Start(ctx context.Context) error {
	ticker := time.NewTicker(retentionInterval) //nolint:forbidigo // machine time: an interval
	defer ticker.Stop()
	for {
		if err := r.removeExpiredClocks(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Failed to delete expired clocks")
		}
		if err := r.releaseStartHolds(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Failed to release held start timeouts")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// removeExpiredClocks checks the workloads of all clocks that are not running.
func (r *Reconciler) removeExpiredClocks(ctx context.Context) error {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks); err != nil {
		return fmt.Errorf("list clocks: %w", err)
	}
	// An unreadable kind must not block the clocks of other kinds.
	var first error
	failed := 0
	for i := range clocks.Items {
		c := &clocks.Items[i]
		if c.Status.RunningSince != nil {
			continue
		}
		err := r.reconcileEndedWorkload(ctx, c)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err): // the next run sees a changed clock
			failed++
			first = cmp.Or(first, err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("check the workloads of clocks: %d of %d failed, the first with: %w", failed, len(clocks.Items), first)
	}
	return nil
}

// reconcileEndedWorkload records that a workload is missing, or exists again, or finished by
// itself, and deletes the clock of one that has been missing for clockRetention. The change of
// the clock causes a reconciliation, which sets the state.
func (r *Reconciler) reconcileEndedWorkload(ctx context.Context, c *v1alpha1.WorkloadClock) error {
	now := r.Clock.Now().Truncate(time.Second)
	missingSince := c.Status.MissingSince
	if missingSince != nil {
		retention, err := r.retentionOf(ctx, c)
		if err != nil {
			return err
		}
		if now.Before(missingSince.Add(retention)) {
			return nil // spares a read for each of many clocks; timelimit.Decide clears MissingSince if pods are bound again
		}
	}
	object, err := r.getRoot(ctx, rootOfClock(c))
	switch {
	case err != nil:
		return err
	case object == nil && missingSince != nil:
		return r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	}
	next := c.DeepCopy()
	s := &next.Status
	switch {
	case object == nil:
		s.MissingSince = &metav1.Time{Time: now}
	case missingSince != nil:
		s.MissingSince = nil
	case s.PausedSince != nil && s.Stopped == nil && s.CompletedAt == nil && isFinished(object):
		s.CompletedAt = &metav1.Time{Time: now}
	default:
		return nil
	}
	return client.IgnoreNotFound(r.Client.Status().Update(ctx, next))
}

// retentionOf returns for how long the clock of a deleted workload is kept.
func (r *Reconciler) retentionOf(ctx context.Context, c *v1alpha1.WorkloadClock) (time.Duration, error) {
	var held int64 // the running time is reset earlier, the GPU time is not
	if usage := c.Status.GPUUsage; usage != nil {
		for i := range usage.Days {
			held += usage.Days[i].GPUMilliSeconds
		}
	}
	if held >= briefGPUTime.Milliseconds() || c.Status.Stopped != nil {
		return clockRetention, nil
	}
	tenant, err := r.lookUpTenant(ctx, c.Namespace)
	if err != nil || tenant == nil {
		return clockRetention, err
	}
	limits, _ := tenant.effectiveLimits(r.Clock.Now(), nil, c.Status.WorkloadType)
	return limits.ResetAfter.Length(), nil
}

// pauseOrphanedClock pauses the clock of a workload whose namespace has no project any more.
// The workload keeps running and is not stopped. A clock that still ran would never be
// deleted, and the stop limiter would count it.
func (r *Reconciler) pauseOrphanedClock(ctx context.Context, w *workload) error {
	s := &w.clock.Status
	if s.RunningSince == nil && s.Deadline == nil && s.GPUs == nil {
		return nil
	}
	limits := timelimit.EffectiveLimits{Limits: v1alpha1.TightestLimits(s.WorkloadType, nil, nil), Leads: defaultLeads}
	if s.Limit != nil {
		limits.MaxRuntime = s.Limit.Configured
	}
	next := w.clock.DeepCopy()
	next.Status = timelimit.Decide(w.now, *s, timelimit.Observation{}, limits).Status
	w.recorded = *s
	next.Status.GPUUsage = r.countGPUUsage(w, s.GPUUsage, r.gpuHolds(w, s.GPUUsage))
	next.Status.GPUs = nil
	next.Status.Local = renderLocalStatus(&next.Status, time.UTC)
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("update orphaned clock %s/%s: %w", next.Namespace, next.Name, err)
	}
	r.heldPods.forget(client.ObjectKeyFromObject(next))
	return nil
}
