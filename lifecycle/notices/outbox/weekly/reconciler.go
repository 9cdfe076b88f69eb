// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package weekly

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/notices"
)

// look is how often it is looked whether a week is over, in machine time: policy time
// may be stepped.
const look = time.Hour

// Reconciler looks at each department.
type Reconciler struct {
	// Client reads from the cache.
	Client client.Client
	// Notices records what people are told, and reads UsageRecords, which are not cached.
	Notices notices.Recorder
	// Clock is policy time.
	Clock clock.Clock
}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("weekly-summary").
		For(&v1alpha1.Department{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(conflict.Retried(r))
}

// Reconcile records the last week of one department, if that was not done.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, request.NamespacedName, &department); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	to := notices.Contacts(&department)
	if len(to) == 0 || !department.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	now := r.Clock.Now()
	w, err := weekOf(department.Spec.Notices, now)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("department %s: %w", department.Name, err))
	}
	again := reconcile.Result{RequeueAfter: max(time.Second, min(look, r.Clock.RealUntil(w.next)))}
	// A department has no week before its own first.
	if !r.Clock.FromReal(department.CreationTimestamp.Time).Before(w.to) {
		return again, nil
	}
	a := notices.Announcement{
		Kind: v1alpha1.NoticeWeeklySummary, Threshold: string(department.UID) + " " + w.day.String(), DueAt: w.due,
		Subject: v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Department", Name: department.Name, UID: department.UID},
	}
	if to, err = r.missing(ctx, a, to); err != nil || len(to) == 0 {
		return again, err
	}
	if a.Inputs, err = r.sum(ctx, &department, w, now); err != nil {
		return again, err
	}
	_, err = r.Notices.Record(ctx, a, to)
	return again, err
}

// missing are the recipients for whom it is not recorded, as far as the cache knows.
func (r *Reconciler) missing(ctx context.Context, a notices.Announcement, to []v1alpha1.NoticeRecipient) (missing []v1alpha1.NoticeRecipient, err error) {
	for _, recipient := range to {
		var n v1alpha1.Notice
		err := r.Client.Get(ctx, client.ObjectKey{Name: a.Name(recipient)}, &n)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("looking for the summary of department %s: %w", a.Subject.Name, err)
		case err != nil:
			missing = append(missing, recipient)
		}
	}
	return missing, nil
}
