// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
)

// retryFault is after how long somebody else's object is looked at again, in
// machine time: nobody tells when it goes.
const retryFault = time.Minute

// ProjectReconciler keeps the rights of every Project's members right.
type ProjectReconciler struct{ Keeper }

// SetupWithManager makes the manager run r.
func (r *ProjectReconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("project-members").
		For(&v1alpha1.Project{}, builder.WithPredicates(specOrNamespace)).
		Watches(&corev1.Namespace{}, r.projectsOfNamespace(), builder.WithPredicates(governance)).
		Watches(&v1alpha1.Department{}, r.projectsOfDepartment(), builder.WithPredicates(comesGoesOrSpec))
	for _, object := range Objects() {
		b = b.Watches(object, named(v1alpha1.LabelProject))
	}
	return b.Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *ProjectReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	err := r.Client.Get(ctx, req.NamespacedName, &project)
	if apierrors.IsNotFound(err) {
		_, err = r.keep(ctx, ofProject(req.Name), nil)
		return reconcile.Result{}, err
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	department, err := r.department(ctx, project.Spec.Department)
	if err != nil {
		return reconcile.Result{}, err
	}
	governed, err := r.governed(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	faults, err := r.keep(ctx, ofProject(project.Name), OfProject(&project, department, governed))
	if err != nil {
		return reconcile.Result{}, err
	}
	if shown(&project.Status.Conditions, faults, project.Generation, metav1.NewTime(clock.MachineNow())) {
		if err := r.Client.Status().Update(ctx, &project); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("writing the status of project %s: %w", project.Name, err)
		}
	}
	return again(faults), nil
}

// department is the one of that name; nil where there is none.
func (r *ProjectReconciler) department(ctx context.Context, name string) (*v1alpha1.Department, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &department)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading department %s: %w", name, err)
	}
	return &department, nil
}

// governed tells whether the project has its namespace and the namespace its
// quotas: before that, what its members run would be counted by nobody.
func (r *ProjectReconciler) governed(ctx context.Context, project *v1alpha1.Project) (bool, error) {
	held := project.Status.Namespace
	if held == nil {
		return false, nil
	}
	var namespace corev1.Namespace
	err := r.Client.Get(ctx, types.NamespacedName{Name: held.Name}, &namespace)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return namespace.UID == held.UID && namespace.Labels[v1alpha1.LabelProject] == project.Name && namespace.DeletionTimestamp.IsZero(), nil
}

func again(faults []string) reconcile.Result {
	if len(faults) > 0 {
		return reconcile.Result{RequeueAfter: retryFault}
	}
	return reconcile.Result{}
}
