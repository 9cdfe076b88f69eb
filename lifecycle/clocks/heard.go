// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// heard is closed once a Grouping was told of every pod that there was at the
// beginning: before that, a workload whose pods run looks as if it had none.
type heard struct {
	source.TypedSyncingSource[parent]
	once sync.Once
	all  chan struct{}
}

// WaitForSync implements [source.TypedSyncingSource]. It is called after Start, and
// so when all that was there has been told.
func (h *heard) WaitForSync(ctx context.Context) error {
	err := h.TypedSyncingSource.WaitForSync(ctx)
	if err == nil {
		h.once.Do(func() { close(h.all) })
	}
	return err
}

// found wakes the clocks' controller for the workloads that a Grouping finds, and
// has it begin when the Grouping was told of all pods.
type found struct{ grouping *Grouping }

// Start implements [source.TypedSource].
func (f found) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	g := f.grouping
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = queue
	for clock := range g.parents {
		g.wake(clock)
	}
	return nil
}

// WaitForSync implements [source.TypedSyncingSource].
func (f found) WaitForSync(ctx context.Context) error {
	select {
	case <-f.grouping.pods:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settled takes a parent for looked at. It is called with the lock held.
func (g *Grouping) settled(p parent) {
	drop(g.open, p.namespace, p)
	if len(g.open[p.namespace]) > 0 {
		return
	}
	for clock := range g.waiting[p.namespace] {
		g.wake(clock)
	}
	delete(g.waiting, p.namespace)
}

// Complete tells whether the workloads of all pods of a clock's namespace are known.
// Where they are not, the clock is looked at again when they are.
func (g *Grouping) Complete(clock types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.open[clock.Namespace]) == 0 {
		return true
	}
	if g.waiting[clock.Namespace] == nil {
		g.waiting[clock.Namespace] = map[types.NamespacedName]struct{}{}
	}
	g.waiting[clock.Namespace][clock] = struct{}{}
	return false
}
