// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// between is the least time between two writes.
const between = time.Second

// Writer writes the status of one GPUNode. Its methods are called from one goroutine.
type Writer struct {
	// Node is the GPUNode's name.
	Node string
	// Live reads from the API server itself, and Status writes.
	Live   client.Reader
	Status client.SubResourceWriter
	// Now is machine time. Default: time.Now.
	Now func() time.Time

	last time.Time
}

func (w *Writer) now() time.Time {
	if w.Now == nil {
		return time.Now()
	}
	return w.Now()
}

// Write writes what the facts change of the status, and nothing where they change
// nothing. known is the GPUNode as it was last seen; the facts hold for it and for no
// other of its name. Where the last write was just now nothing is written, and it says
// after how long to call again. A GPUNode that is gone is no error.
func (w *Writer) Write(ctx context.Context, known *v1alpha1.GPUNode, facts Facts) (again time.Duration, err error) {
	now := w.now()
	if same(&known.Status, facts, now) {
		return 0, nil
	}
	if since := now.Sub(w.last); since >= 0 && since < between {
		return between - since, nil
	}
	// Read again: what was last seen may be older than our own last write.
	var present v1alpha1.GPUNode
	if err := w.Live.Get(ctx, types.NamespacedName{Name: w.Node}, &present); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("reading GPUNode %s: %w", w.Node, err))
	}
	if present.UID != known.UID || same(&present.Status, facts, now) {
		return 0, nil
	}
	next := present.DeepCopy()
	next.Status = *status(&present.Status, facts, now)
	w.last = now
	if err := w.Status.Patch(ctx, next, client.MergeFrom(&present), client.FieldOwner(v1alpha1.FieldManagerGPUAgent)); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("writing the status of GPUNode %s: %w", w.Node, err))
	}
	return 0, nil
}

// same tells whether the facts change nothing of a status.
func same(former *v1alpha1.GPUNodeStatus, facts Facts, now time.Time) bool {
	return equality.Semantic.DeepEqual(former, status(former, facts, now))
}
