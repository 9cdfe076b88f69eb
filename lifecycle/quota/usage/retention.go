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
	// retentionMonths is the number of whole months for which a record is kept, in policy time.
	retentionMonths = 36
	// retentionInterval is the interval at which expired records are deleted, in machine time.
	retentionInterval = time.Hour
	// listPageSize is the number of records in one list request.
	listPageSize = 500
	// flushTimeout limits the last writes when the process exits.
	flushTimeout = 10 * time.Second
)

// Start implements manager.Runnable. It deletes expired records until ctx ends, and then writes
// the pending usage of ended pods.
func (r *Reconciler) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.deleteExpired(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Failed to delete expired usage records")
		}
	}, retentionInterval)
	r.flush(context.WithoutCancel(ctx))
	return nil
}

// flush writes the usage of ended pods.
func (r *Reconciler) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for _, namespace := range r.tracker.namespaceNames() {
		if _, err := r.reconcileNamespace(ctx, namespace, true); err != nil {
			log.FromContext(ctx).Error(err, "Failed to record final GPU usage", "namespace", namespace)
		}
	}
}

// deleteExpired lists the metadata of all records once and deletes the expired ones.
func (r *Reconciler) deleteExpired(ctx context.Context) error {
	now := r.Clock.Now()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("UsageRecordList"))
	for {
		if err := r.Live.List(ctx, list, client.Limit(listPageSize), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("list usage records: %w", err)
		}
		for i := range list.Items {
			record := &list.Items[i]
			if !isExpired(record.Name, now) {
				continue
			}
			expired := &v1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{Name: record.Name}}
			err := r.Client.Delete(ctx, expired, client.Preconditions{UID: &record.UID})
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete usage record %s: %w", record.Name, err)
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// isExpired reports whether a record with that name is older than the retention in every time
// zone.
func isExpired(name string, now time.Time) bool {
	if len(name) < len(monthLayout) {
		return false
	}
	month, err := time.Parse(monthLayout, name[len(name)-len(monthLayout):])
	if err != nil {
		return false
	}
	return !now.Before(month.AddDate(0, 1+retentionMonths, 0).Add(maxZoneDifference))
}
