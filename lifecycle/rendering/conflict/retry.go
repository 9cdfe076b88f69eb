// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conflict retries reconciliations that met a newer version of an object, after
// a short time and without an error in the log.
package conflict

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// retryDelay is about how long a cache takes to receive the newer version, in machine time.
const retryDelay = 100 * time.Millisecond

// WithRetry returns r without its conflicts, which it retries after retryDelay.
func WithRetry(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			ctrl.LoggerFrom(ctx).V(1).Info("Retrying after a conflict", "reason", err.Error())
			return reconcile.Result{RequeueAfter: retryDelay}, nil
		}
		return result, err
	})
}
