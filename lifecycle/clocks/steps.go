// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// stepped is policy time that can be stepped: that of an embedded cluster.
type stepped interface{ Timeline() clock.Timeline }

// stepLook is how often that is looked at, in machine time.
const stepLook = 100 * time.Millisecond

// steps has every clock looked at when policy time was stepped, or changed its
// pace: what would have been due later may be due now.
func (r *Reconciler) steps() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		of, ok := r.Clock.(stepped)
		if !ok {
			return nil
		}
		go r.follow(ctx, of, queue)
		return nil
	})
}

func (r *Reconciler) follow(ctx context.Context, of stepped, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	look := time.NewTicker(stepLook) //nolint:forbidigo // machine time: how often it is looked
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
