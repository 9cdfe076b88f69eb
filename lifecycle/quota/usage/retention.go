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
	// retentionMonths is for how many whole months a record is kept after its own, in
	// policy time.
	retentionMonths = 36
	// retentionInterval is how often older records are looked for, in machine time.
	retentionInterval = time.Hour
	// listPageSize is how many records are asked for at once.
	listPageSize = 500
	// flushTimeout is how long the last writes may take when the process ends.
	flushTimeout = 10 * time.Second
)

// Start takes away the records that have been kept long enough, until ctx ends; then
// it writes what has ended and is not in the records yet. It implements
// manager.Runnable.
func (r *Reconciler) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.deleteExpired(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "looking for usage records that have been kept long enough")
		}
	}, retentionInterval)
	r.flush(context.WithoutCancel(ctx))
	return nil
}

// flush writes what has ended, as far as that is quickly done.
func (r *Reconciler) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for _, namespace := range r.tracker.namespaceNames() {
		if _, err := r.reconcileNamespace(ctx, namespace, true); err != nil {
			log.FromContext(ctx).Error(err, "recording the last use of GPUs", "namespace", namespace)
		}
	}
}

// deleteExpired looks once at all records, of which it reads the names alone.
func (r *Reconciler) deleteExpired(ctx context.Context) error {
	now := r.Clock.Now()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("UsageRecordList"))
	for {
		if err := r.Live.List(ctx, list, client.Limit(listPageSize), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("listing usage records: %w", err)
		}
		for i := range list.Items {
			record := &list.Items[i]
			if !isExpired(record.Name, now) {
				continue
			}
			gone := &v1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{Name: record.Name}}
			err := r.Client.Delete(ctx, gone, client.Preconditions{UID: &record.UID})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting usage record %s, which was kept for %d months: %w", record.Name, retentionMonths, err)
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// isExpired tells whether a record of that name was kept long enough, wherever its
// month ended.
func isExpired(name string, now time.Time) bool {
	if len(name) < len(monthLayout) {
		return false
	}
	of, err := time.Parse(monthLayout, name[len(name)-len(monthLayout):])
	if err != nil {
		return false
	}
	return !now.Before(of.AddDate(0, 1+retentionMonths, 0).Add(maxZoneDifference))
}
