// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
)

// Reconciler keeps every Project's namespace right.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale answer would do harm.
	Live client.Reader
	// Events tells people what was done to their objects.
	Events events.EventRecorder
	// Clock is policy time, in which phases are recorded.
	Clock clock.Clock
}

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("project").
		For(&v1alpha1.Project{}, builder.WithPredicates(specOrDeletion)).
		Watches(&corev1.Namespace{}, r.projectsOfNamespace()).
		Watches(&v1alpha1.Department{}, r.projectsOfDepartment(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Project{}, r.rivals(), builder.WithPredicates(goneOrGoing)).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, req.NamespacedName, &project); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !project.DeletionTimestamp.IsZero() {
		return r.release(ctx, &project)
	}
	// Before anything is made there must be something that takes it back.
	before := project.DeepCopy()
	if controllerutil.AddFinalizer(&project, v1alpha1.FinalizerProject) {
		if err := r.Client.Patch(ctx, &project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{}, fmt.Errorf("adding the finalizer to project %s: %w", project.Name, err)
		}
	}
	refusal, err := r.govern(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.writeStatus(ctx, &project, refusal)
}

// govern gives the project its namespace. A refusal is for people: nothing here
// changes until somebody changes the project, the namespace or the department.
func (r *Reconciler) govern(ctx context.Context, project *v1alpha1.Project) (*tenancy.Refusal, error) {
	if refusal, err := r.departmentMissing(ctx, project); refusal != nil || err != nil {
		return refusal, err
	}
	if refusal, err := r.outbid(ctx, project); refusal != nil || err != nil {
		return refusal, err
	}
	namespace, err := r.namespace(ctx, project.NamespaceName())
	if err != nil {
		return nil, err
	}
	claim, refusal := tenancy.Of(project, namespace)
	if refusal != nil {
		return refusal, nil
	}
	if claim == tenancy.Make {
		if namespace, err = r.makeNamespace(ctx, project); err != nil {
			return nil, err
		}
	}
	// The status says whose the namespace is before its labels do: from the
	// labels on it is governed, and a crash in between leaves it as it was.
	if err := r.recordNamespace(ctx, project, namespace, claim); err != nil {
		return nil, err
	}
	return nil, r.label(ctx, project, namespace, claim)
}

func (r *Reconciler) departmentMissing(ctx context.Context, project *v1alpha1.Project) (*tenancy.Refusal, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department)
	if apierrors.IsNotFound(err) {
		return &tenancy.Refusal{
			Reason:  v1alpha1.ReasonDepartmentMissing,
			Message: fmt.Sprintf("department %s does not exist; create it, or set spec.department to one that does", project.Spec.Department),
		}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading department %s: %w", project.Spec.Department, err)
	}
	return nil, nil
}
