// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
)

// DepartmentReconciler keeps the rights right that a Department's members have on
// the department itself.
type DepartmentReconciler struct{ Keeper }

// SetupWithManager makes the manager run r.
func (r *DepartmentReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("department-members").
		For(&v1alpha1.Department{}, builder.WithPredicates(comesGoesOrSpec)).
		Watches(&rbacv1.ClusterRole{}, named(v1alpha1.LabelDepartment)).
		Watches(&rbacv1.ClusterRoleBinding{}, named(v1alpha1.LabelDepartment)).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the department of the request's name.
func (r *DepartmentReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, req.NamespacedName, &department)
	if apierrors.IsNotFound(err) {
		_, err = r.keep(ctx, ofDepartment(req.Name), nil)
		return reconcile.Result{}, err
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	faults, err := r.keep(ctx, ofDepartment(department.Name), OfDepartment(&department))
	if err != nil {
		return reconcile.Result{}, err
	}
	if shown(&department.Status.Conditions, faults, department.Generation, metav1.NewTime(clock.MachineNow())) {
		if err := r.Client.Status().Update(ctx, &department); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("writing the status of department %s: %w", department.Name, err)
		}
	}
	return again(faults), nil
}
