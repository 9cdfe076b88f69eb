// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// batchDelay is the time for which changes are collected before a plan, in machine time.
const batchDelay = 250 * time.Millisecond

// pendingPods are the pending pods of the pod cache that request MIG instances. It is a source of
// the planner's requests.
type pendingPods struct {
	*podcache.Projection[*pendingPod]
	announced eviction.AnnouncedPods // nil without preemption
	store     *podcache.Store
}

func newPendingPods(store *podcache.Store, announced eviction.AnnouncedPods) *pendingPods {
	return &pendingPods{podcache.NewProjection(store, parsePendingPod), announced, store}
}

// Start implements source.TypedSource. It requests a plan when a pod becomes pending or ceases to
// be, or its constraints change.
func (p *pendingPods) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	request := func() { queue.AddAfter(planRequest, batchDelay) }
	p.OnChange(request)
	if p.announced != nil {
		p.announced.OnChange(request)
	}
	queue.AddAfter(planRequest, batchDelay)
	return nil
}

// WaitForSync implements source.TypedSyncingSource.
func (p *pendingPods) WaitForSync(ctx context.Context) error { return p.store.WaitForSync(ctx) }
