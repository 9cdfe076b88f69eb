// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conflict keeps ordinary conflicts out of the log.
//
// Enters: what a reconciler returns. Leaves: the same, but for a write that met
// a newer version of its object: that is tried again soon, and is no error. It
// never hides another failure.
package conflict

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// retryDelay is about how long a cache takes to see the newer version, in machine time.
const retryDelay = 100 * time.Millisecond

// WithRetry is r whose conflicts are tried again without an error.
func WithRetry(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			ctrl.LoggerFrom(ctx).V(1).Info("somebody else was quicker; trying again", "reason", err.Error())
			return reconcile.Result{RequeueAfter: retryDelay}, nil
		}
		return result, err
	})
}
