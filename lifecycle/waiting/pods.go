// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/lifecycle/gpupods"
)

// podChanges brings back a project when what its pods are charged, or where they
// wait, is another. It hears of pods for as long as this process has the turn.
type podChanges struct {
	r *Reconciler
	// fresh is set once all pods are known that were there before: these are nobody's
	// news.
	fresh atomic.Bool
}

// Start implements source.TypedSource.
func (p *podChanges) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	p.r.began = clock.MachineNow()
	cancel := p.r.Pods.Changes(func(c gpupods.Change) {
		project := c.Pod().Project
		if project == "" {
			return
		}
		heard := false
		if p.fresh.Load() {
			heard = p.r.waits.hear(c)
		}
		if heard || !sameCharge(c.Before, c.After) {
			queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: project}}, settle)
		}
	})
	context.AfterFunc(ctx, cancel)
	return nil
}

// WaitForSync implements source.TypedSyncingSource.
func (p *podChanges) WaitForSync(ctx context.Context) error {
	err := p.r.Pods.WaitForSync(ctx)
	p.fresh.Store(err == nil)
	return err
}

// sameCharge tells whether a pod counts as before.
func sameCharge(before, after *gpupods.Pod) bool {
	return before != nil && after != nil && before.Project == after.Project && before.Pool == after.Pool && before.Milli == after.Milli &&
		before.Queued == after.Queued && before.Deleting == after.Deleting && (before.Node == "") == (after.Node == "")
}
