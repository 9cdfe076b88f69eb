// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// keptFor is how long a clock is kept after its workload is gone, in policy time.
const keptFor = 30 * 24 * time.Hour

// retentionLook is how often workloads that do not run are looked for, in machine
// time.
const retentionLook = time.Hour

// Start takes away the clocks of workloads that are long gone, until ctx ends. It
// implements manager.Runnable.
func (r *Reconciler) Start(ctx context.Context) error {
	look := time.NewTicker(retentionLook)
	defer look.Stop()
	for {
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "looking for clocks of workloads that are gone")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// sweep looks once at all workloads that do not run.
func (r *Reconciler) sweep(ctx context.Context) error {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks); err != nil {
		return fmt.Errorf("listing clocks: %w", err)
	}
	for i := range clocks.Items {
		c := &clocks.Items[i]
		if c.Status.RunningSince != nil {
			continue
		}
		if err := r.retire(ctx, c); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// retire records that a clock's workload is gone, and takes the clock away when it
// has been for long.
func (r *Reconciler) retire(ctx context.Context, c *v1alpha1.WorkloadClock) error {
	object, err := r.read(ctx, rootOf(c))
	if err != nil {
		return err
	}
	now := r.Clock.Now().Truncate(time.Second)
	gone := c.Status.GoneSince
	switch {
	case object != nil && gone == nil:
		return nil
	case gone != nil && object == nil && now.Before(gone.Add(keptFor)):
		return nil
	case gone != nil && object == nil:
		return r.Client.Delete(ctx, c, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	}
	next := c.DeepCopy()
	next.Status.GoneSince = nil
	if object == nil {
		next.Status.GoneSince = &metav1.Time{Time: now}
	}
	return client.IgnoreNotFound(r.Client.Status().Update(ctx, next))
}
