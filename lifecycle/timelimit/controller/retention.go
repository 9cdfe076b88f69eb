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
)

// clockRetention is how long a clock is kept after its workload is gone, in policy time.
const clockRetention = 30 * 24 * time.Hour

// retentionInterval is how often workloads that do not run are looked for, in machine
// time.
const retentionInterval = time.Hour

// Start takes away the clocks of workloads that are long gone, until ctx ends. It
// implements manager.Runnable.
func (r *Reconciler) Start(ctx context.Context) error {
	look := time.NewTicker(retentionInterval) //nolint:forbidigo // machine time: how often it is looked
	defer look.Stop()
	for {
		if err := r.removeExpiredClocks(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "looking for clocks of workloads that are gone")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// removeExpiredClocks looks once at all workloads that do not run.
func (r *Reconciler) removeExpiredClocks(ctx context.Context) error {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks); err != nil {
		return fmt.Errorf("listing clocks: %w", err)
	}
	// One kind that cannot be read keeps no other's clocks.
	var first error
	failed := 0
	for i := range clocks.Items {
		c := &clocks.Items[i]
		if c.Status.RunningSince != nil {
			continue
		}
		err := r.reconcileGoneWorkload(ctx, c)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err): // what changed is looked at the next time
			failed++
			first = cmp.Or(first, err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d clocks could not be looked at, the first because of: %w", failed, len(clocks.Items), first)
	}
	return nil
}

// reconcileGoneWorkload records that a clock's workload is gone, and takes the clock away when it
// has been for long.
func (r *Reconciler) reconcileGoneWorkload(ctx context.Context, c *v1alpha1.WorkloadClock) error {
	now := r.Clock.Now().Truncate(time.Second)
	gone := c.Status.MissingSince
	if gone != nil && now.Before(gone.Add(clockRetention)) {
		return nil // there may be very many, and one whose pods run again is not gone
	}
	object, err := r.getRoot(ctx, rootOfClock(c))
	switch {
	case err != nil:
		return err
	case object != nil && gone == nil:
		return nil
	case gone != nil && object == nil:
		return r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	}
	next := c.DeepCopy()
	next.Status.MissingSince = nil
	if object == nil {
		next.Status.MissingSince = &metav1.Time{Time: now}
	}
	return client.IgnoreNotFound(r.Client.Status().Update(ctx, next))
}
