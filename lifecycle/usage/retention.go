// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/v1alpha1"
)

const (
	// keptMonths is for how many whole months a record is kept after its own, in
	// policy time.
	keptMonths = 36
	// retentionLook is how often older records are looked for, in machine time.
	retentionLook = time.Hour
	// page is how many records are asked for at once.
	page = 500
	// lastMoment is how long the last writes may take when the process ends.
	lastMoment = 10 * time.Second
)

// Start takes away the records that have been kept long enough, until ctx ends; then
// it writes what has ended and is not in the records yet. It implements
// manager.Runnable.
func (r *Reconciler) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "looking for usage records that have been kept long enough")
		}
	}, retentionLook)
	r.flush(context.WithoutCancel(ctx))
	return nil
}

// flush writes what has ended, as far as that is quickly done.
func (r *Reconciler) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastMoment)
	defer cancel()
	for _, namespace := range r.meter.names() {
		if _, err := r.account(ctx, namespace, true); err != nil {
			log.FromContext(ctx).Error(err, "recording the last use of GPUs", "namespace", namespace)
		}
	}
}

// sweep looks once at all records, of which it reads the names alone.
func (r *Reconciler) sweep(ctx context.Context) error {
	now := r.Clock.Now()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("UsageRecordList"))
	for {
		if err := r.Live.List(ctx, list, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("listing usage records: %w", err)
		}
		for i := range list.Items {
			record := &list.Items[i]
			if !expired(record.Name, now) {
				continue
			}
			gone := &v1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{Name: record.Name}}
			err := r.Client.Delete(ctx, gone, client.Preconditions{UID: &record.UID})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting usage record %s, which was kept for %d months: %w", record.Name, keptMonths, err)
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// expired tells whether a record of that name was kept long enough, wherever its
// month ended.
func expired(name string, now time.Time) bool {
	if len(name) < len(monthForm) {
		return false
	}
	of, err := time.Parse(monthForm, name[len(name)-len(monthForm):])
	if err != nil {
		return false
	}
	return !now.Before(of.AddDate(0, 1+keptMonths, 0).Add(anyZone))
}
