// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const (
	// retentionMonths is how many months a Notice is kept, workloadRetentionDays how many days one
	// about an object in a namespace, such as a workload: most Notices. Both are policy time.
	retentionMonths       = 13
	workloadRetentionDays = 30
	// retentionInterval is the time between two runs, retentionBatchDelay between two batches, in
	// machine time.
	retentionInterval   = time.Hour
	retentionBatchDelay = 10 * time.Second
	// retentionBatchSize bounds the deletions of one batch.
	retentionBatchSize = 200
)

// Retention deletes expired Notices, also if mail is not configured.
type Retention struct {
	// Client reads from the cache and deletes.
	Client client.Client
	// Clock is policy time.
	Clock policytime.Clock
}

// Start deletes expired Notices until ctx ends. It implements manager.Runnable.
func (r *Retention) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for {
			more, err := r.deleteExpired(ctx)
			if err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "Failed to delete expired notices")
			}
			if !more || err != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(retentionBatchDelay): //nolint:forbidigo // machine time
			}
		}
	}, retentionInterval)
	return nil
}

// deleteExpired deletes a batch and returns whether there are more.
func (r *Retention) deleteExpired(ctx context.Context) (more bool, err error) {
	var all v1alpha1.NoticeList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list notices: %w", err)
	}
	now, deleted := r.Clock.Now(), 0
	for i := range all.Items {
		n := &all.Items[i]
		if !isExpired(n, now) {
			continue
		}
		if deleted == retentionBatchSize {
			return true, nil
		}
		deleted++
		// A Notice whose resending was just requested has another version and stays.
		err := r.Client.Delete(ctx, &v1alpha1.Notice{ObjectMeta: *n.ObjectMeta.DeepCopy()},
			client.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("delete expired notice %s: %w", n.Name, err)
		}
	}
	return false, nil
}

// isExpired reports whether a Notice is finished and its retention after its last time is over.
func isExpired(n *v1alpha1.Notice, now time.Time) bool {
	if !isFinished(n) {
		return false
	}
	last := n.Spec.DueAt.Time
	for _, at := range []*metav1.Time{n.Spec.Deadline, n.Status.SentAt} {
		if at != nil && at.After(last) {
			last = at.Time
		}
	}
	if n.Spec.Subject != nil && n.Spec.Subject.Namespace != "" {
		return !now.Before(last.AddDate(0, 0, workloadRetentionDays))
	}
	return !now.Before(last.AddDate(0, retentionMonths, 0))
}
