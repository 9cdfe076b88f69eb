// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conflict

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// soon is about how long a cache takes to see the newer version, in machine time.
const soon = 100 * time.Millisecond

// Retried is r whose conflicts are tried again without an error.
func Retried(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			ctrl.LoggerFrom(ctx).V(1).Info("somebody else was quicker; trying again", "reason", err.Error())
			return reconcile.Result{RequeueAfter: soon}, nil
		}
		return result, err
	})
}
