// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpupods

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Source wakes a controller for changed GPU pods: the requests that keys makes of
// each [Change] go to its queue. The controller starts once all pods are known.
// keys is called as the handler of [Store.Changes] is, and must be as quick.
func Source[request comparable](store *Store, keys func(Change) []request) source.TypedSyncingSource[request] {
	return &waking[request]{store: store, keys: keys}
}

type waking[request comparable] struct {
	store *Store
	keys  func(Change) []request
}

// Start implements [source.TypedSource].
func (w *waking[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	cancel := w.store.Changes(func(c Change) {
		for _, key := range w.keys(c) {
			queue.Add(key)
		}
	})
	context.AfterFunc(ctx, cancel)
	return nil
}

// WaitForSync implements [source.TypedSyncingSource].
func (w *waking[request]) WaitForSync(ctx context.Context) error { return w.store.WaitForSync(ctx) }
