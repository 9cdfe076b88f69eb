// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const (
	// retentionMonths is the number of months for which a Notice is kept, workloadRetentionDays the number of days for one
	// about an object in a namespace, such as a workload: most Notices. Both are policy time.
	retentionMonths       = 13
	workloadRetentionDays = 30
	// retentionInterval is the time between two runs, retentionBatchDelay between two batches, in
	// machine time.
	retentionInterval   = time.Hour
	retentionBatchDelay = 10 * time.Second
	// retentionBatchSize bounds the deletions of one batch.
	retentionBatchSize = 200
	// retentionLookbackYears is the number of years since the end of a Notice's retention up to which it is found
	// after a start.
	retentionLookbackYears = 10
)

// indexExpiryDay is the index of the cache that holds each Notice by the UTC day on which its
// retention ends, in policy time.
const indexExpiryDay = "outbox.expiryDay"

// Retention deletes expired Notices, also if mail is not configured.
type Retention struct {
	// Client reads from the cache and deletes.
	Client client.Client
	// Clock is policy time.
	Clock policytime.Clock

	// days are the days to check, in the form of expiryDay: those since the last run, and earlier
	// ones with a Notice that is not finished. lastDay is the last of them.
	days    map[string]bool
	lastDay time.Time
}

// SetupWithManager adds the index and the task to the manager.
func (r *Retention) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Notice{}, indexExpiryDay, indexNotice(expiryDay)); err != nil {
		return fmt.Errorf("index notices by %s: %w", indexExpiryDay, err)
	}
	return mgr.Add(r)
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
	now := r.Clock.Now()
	r.addDays(now)
	deleted := 0
	for _, day := range slices.Sorted(maps.Keys(r.days)) {
		notices, err := listByIndex(ctx, r.Client, indexExpiryDay, day)
		if err != nil {
			return false, err
		}
		done := true
		for i := range notices {
			n := &notices[i]
			if !isExpired(n, now) {
				done = false
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
		if done && day < r.lastDay.Format(time.DateOnly) {
			delete(r.days, day)
		}
	}
	return false, nil
}

// addDays adds the days since the last call; at the first call those of retentionLookbackYears.
func (r *Retention) addDays(now time.Time) {
	today := now.UTC().Truncate(24 * time.Hour)
	if r.days == nil {
		r.days, r.lastDay = map[string]bool{}, today.AddDate(-retentionLookbackYears, 0, 0)
	}
	for day := r.lastDay; !day.After(today); day = day.AddDate(0, 0, 1) {
		r.days[day.Format(time.DateOnly)] = true
	}
	r.lastDay = today
}

// isExpired reports whether a Notice is finished and its retention is over.
func isExpired(n *v1alpha1.Notice, now time.Time) bool {
	return isFinished(n) && !now.Before(expiresAt(n))
}

func expiryDay(n *v1alpha1.Notice) string { return expiresAt(n).UTC().Format(time.DateOnly) }

// expiresAt returns the end of a Notice's retention after its last time.
func expiresAt(n *v1alpha1.Notice) time.Time {
	last := n.Spec.DueAt.Time
	for _, at := range []*metav1.Time{n.Spec.Deadline, n.Status.SentAt} {
		if at != nil && at.After(last) {
			last = at.Time
		}
	}
	if n.Spec.Subject != nil && n.Spec.Subject.Namespace != "" {
		return last.AddDate(0, 0, workloadRetentionDays)
	}
	return last.AddDate(0, retentionMonths, 0)
}
