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
	// retentionMonths is for how many months a Notice is kept, in policy time: as are the
	// deadlines of which it is the record.
	retentionMonths = 13
	// retentionInterval is how often older ones are looked for, in machine time, and
	// retentionPause how long after a batch the next follows.
	retentionInterval   = time.Hour
	retentionBatchDelay = 10 * time.Second
	// retentionBatchSize is how many are taken away at once.
	retentionBatchSize = 200
)

// Retention takes away the Notices that were kept long enough. It also does where no
// mail is sent.
type Retention struct {
	// Client reads from the cache and deletes.
	Client client.Client
	// Clock is policy time.
	Clock policytime.Clock
}

// Start looks for them until ctx ends. It implements manager.Runnable.
func (r *Retention) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for {
			more, err := r.deleteExpired(ctx)
			if err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "looking for notices that have been kept long enough")
			}
			if !more || err != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(retentionBatchDelay): //nolint:forbidigo // machine time: the API server has other things to do
			}
		}
	}, retentionInterval)
	return nil
}

// deleteExpired takes a batch away, and tells whether there are more.
func (r *Retention) deleteExpired(ctx context.Context) (more bool, err error) {
	var all v1alpha1.NoticeList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing notices: %w", err)
	}
	now, gone := r.Clock.Now(), 0
	for i := range all.Items {
		n := &all.Items[i]
		if !isExpired(n, now) {
			continue
		}
		if gone == retentionBatchSize {
			return true, nil
		}
		gone++
		// What was asked for again in this moment has another version, and stays.
		err := r.Client.Delete(ctx, &v1alpha1.Notice{ObjectMeta: *n.ObjectMeta.DeepCopy()},
			client.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting notice %s, which was kept for %d months: %w", n.Name, retentionMonths, err)
		}
	}
	return false, nil
}

// isExpired tells whether a Notice came to its end, and all that it says lies 13 months
// in the past. What waits is never taken away.
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
	return !now.Before(last.AddDate(0, retentionMonths, 0))
}
