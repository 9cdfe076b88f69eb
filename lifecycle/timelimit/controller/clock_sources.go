// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// podSyncSource is closed once a Grouping was told of every pod that there was at the
// beginning: before that, a workload whose pods run looks as if it had none.
type podSyncSource struct {
	source.TypedSyncingSource[directOwner]
	once       sync.Once
	podsSynced chan struct{}
}

// WaitForSync implements [source.TypedSyncingSource]. It is called after Start, and
// so when all that was there has been told.
func (h *podSyncSource) WaitForSync(ctx context.Context) error {
	err := h.TypedSyncingSource.WaitForSync(ctx)
	if err == nil {
		h.once.Do(func() { close(h.podsSynced) })
	}
	return err
}

// clockSource wakes the clocks' controller for the workloads that a Grouping finds, and
// has it begin when the Grouping was told of all pods.
type clockSource struct{ index *WorkloadIndex }

// Start implements [source.TypedSource].
func (f clockSource) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	g := f.index
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = queue
	for clock := range g.owners {
		g.enqueueClock(clock)
	}
	return nil
}

// WaitForSync implements [source.TypedSyncingSource].
func (f clockSource) WaitForSync(ctx context.Context) error {
	select {
	case <-f.index.podsSynced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// markResolved takes a parent for looked at. It is called with the lock held.
func (g *WorkloadIndex) markResolved(p directOwner) {
	removeFromSet(g.unresolved, p.namespace, p)
	if len(g.unresolved[p.namespace]) > 0 {
		return
	}
	for clock := range g.awaitingResolution[p.namespace] {
		g.enqueueClock(clock)
	}
	delete(g.awaitingResolution, p.namespace)
}

// IsComplete tells whether the workloads of all pods of a clock's namespace are known.
// Where they are not, the clock is looked at again when they are.
func (g *WorkloadIndex) IsComplete(clock types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.unresolved[clock.Namespace]) == 0 {
		return true
	}
	if g.awaitingResolution[clock.Namespace] == nil {
		g.awaitingResolution[clock.Namespace] = map[types.NamespacedName]struct{}{}
	}
	g.awaitingResolution[clock.Namespace][clock] = struct{}{}
	return false
}

// timelineClock is policy time that can be stepped: that of an embedded cluster.
type timelineClock interface{ Timeline() policytime.Timeline }

// timelinePollInterval is how often that is looked at, in machine time.
const timelinePollInterval = 100 * time.Millisecond

// timelineSource has every clock looked at when policy time was stepped, or changed its
// pace: what would have been due later may be due now.
func (r *Reconciler) timelineSource() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		of, ok := r.Clock.(timelineClock)
		if !ok {
			return nil
		}
		go r.watchTimeline(ctx, of, queue)
		return nil
	})
}

func (r *Reconciler) watchTimeline(ctx context.Context, of timelineClock, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	look := time.NewTicker(timelinePollInterval) //nolint:forbidigo // machine time: how often it is looked
	defer look.Stop()
	known := len(of.Timeline().Segments)
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if now := len(of.Timeline().Segments); now != known {
			known = now
			var clocks v1alpha1.WorkloadClockList
			if err := r.Client.List(ctx, &clocks); err != nil {
				log.FromContext(ctx).Error(err, "listing clocks after a step of policy time")
			}
			for i := range clocks.Items {
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&clocks.Items[i])})
			}
		}
	}
}
