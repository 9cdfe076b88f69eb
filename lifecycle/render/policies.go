// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/policies/engine"
)

// Changes tells listeners of every change of the policies in force, after it, and
// at once of the last where there was one: a live.Keeper.
type Changes interface {
	OnReports(listener func([]engine.Report))
}

// OtherPolicies is the source of a controller that looks at all its subjects again
// when other policies are in force, since they may render something else. The
// controller begins to work once policies are loaded.
func OtherPolicies(changes Changes, all func(context.Context) []reconcile.Request) source.SyncingSource {
	return &otherPolicies{changes: changes, all: all, loaded: make(chan struct{})}
}

type otherPolicies struct {
	changes Changes
	all     func(context.Context) []reconcile.Request
	once    sync.Once
	loaded  chan struct{}
}

// Start implements source.Source.
func (o *otherPolicies) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.changes.OnReports(func([]engine.Report) {
		first := false
		o.once.Do(func() { first = true; close(o.loaded) })
		// Before the first nobody worked, and all subjects wait in the queue.
		if first || ctx.Err() != nil {
			return
		}
		for _, request := range o.all(ctx) {
			queue.Add(request)
		}
	})
	return nil
}

// WaitForSync implements source.SyncingSource.
func (o *otherPolicies) WaitForSync(ctx context.Context) error {
	select {
	case <-o.loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the policies: %w", ctx.Err())
	}
}
