// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// conflictRequeue is about how long a cache takes to receive the newer version, in machine time.
const conflictRequeue = 100 * time.Millisecond

// RequeueOnConflict returns r without its conflicts: it retries a reconciliation that met a newer
// version of an object after conflictRequeue, without an error in the log. Controllers that write with a
// resourceVersion need it.
func RequeueOnConflict(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			ctrl.LoggerFrom(ctx).V(1).Info("Retrying after a conflict", "reason", err.Error())
			return reconcile.Result{RequeueAfter: conflictRequeue}, nil
		}
		return result, err
	})
}
