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
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/conflict"
	"sluice.dev/lifecycle/render"
	"sluice.dev/lifecycle/render/queuekinds"
	"sluice.dev/policies/engine"
)

// Reconciler keeps every Project's namespace right, and the objects in it that
// policies render.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale answer would do harm.
	Live client.Reader
	// Policies are those in force; they render the project's objects.
	Policies *engine.Engine
	// Changes tells when other policies are in force.
	Changes render.Changes
	// Queues knows what is there of the kinds of engines.
	Queues *queuekinds.Watch
	// Events tells people what was done to their objects.
	Events events.EventRecorder
	// Clock is policy time, in which phases are recorded.
	Clock clock.Clock
	// Rights are the members', which go before anything else of a project does.
	Rights Rights

	applied render.Memory
}

// Rights are what a project's members may do: a members.Keeper.
type Rights interface {
	// Release takes them back; again, it does nothing.
	Release(ctx context.Context, project *v1alpha1.Project) error
}

// workers are how many projects are worked on at a time. They wait for the API
// server most of the time; of one project no two do.
const workers = 16

// SetupWithManager makes the manager run r, once policies are loaded and it is known
// which kinds of engines there are.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// Policies read labels and annotations too.
	declared := predicate.Or[client.Object](specOrDeletion, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		Named("project").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		For(&v1alpha1.Project{}, builder.WithPredicates(declared)).
		Watches(&corev1.Namespace{}, r.projectsOfNamespace(), builder.WithPredicates(madeBySomebody)).
		Watches(&v1alpha1.Department{}, r.projectsOfDepartment(), builder.WithPredicates(declared)).
		Watches(&v1alpha1.NodePool{}, r.projectsOfNodePool(), builder.WithPredicates(seenByPolicies)).
		Watches(&v1alpha1.NodePool{}, r.projectsOfResizedNodePool(), builder.WithPredicates(resized)).
		Watches(&v1alpha1.Project{}, r.rivals(), builder.WithPredicates(goneOrGoing))
	for _, object := range render.Objects() {
		b = b.Watches(object, rendered{})
	}
	return b.
		WatchesRawSource(r.Queues.Source(render.ForProject, r.all)).
		WatchesRawSource(render.OtherPolicies(r.Changes, r.all)).
		Complete(conflict.Retried(r))
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, req.NamespacedName, &project); err != nil {
		if apierrors.IsNotFound(err) {
			err = r.applier().RemoveOrphans(ctx, render.ClusterWide(render.ForProject, req.Name), &project)
		}
		return reconcile.Result{}, err
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
	outcome, err := r.govern(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	return outcome.again(), r.writeStatus(ctx, &project, outcome)
}

// govern gives the project its namespace, what policies render into it, and then
// the labels. A refusal is for people: nothing here changes until somebody
// changes the project, the namespace or the department.
func (r *Reconciler) govern(ctx context.Context, project *v1alpha1.Project) (Outcome, error) {
	department, missing, err := r.department(ctx, project)
	if missing != nil || err != nil {
		return Outcome{Refusal: missing}, err
	}
	if refusal, err := r.outbid(ctx, project); refusal != nil || err != nil {
		return Outcome{Refusal: refusal}, err
	}
	namespace, claim, refusal, err := r.claim(ctx, project)
	if refusal != nil || err != nil {
		return Outcome{Refusal: refusal}, err
	}
	// The status says whose the namespace is before anything of the project's is
	// in it: a crash in between leaves nothing that nobody takes back. One that was
	// made says so itself, from the start.
	fresh := claim == tenancy.Make && project.Status.ObservedGeneration == 0
	if !fresh {
		if err := r.recordNamespace(ctx, project, namespace, claim); err != nil {
			return Outcome{}, err
		}
	}
	governed := namespace.Labels[v1alpha1.LabelProject] == project.Name
	outcome, err := r.applyObjects(ctx, project, department, governed, fresh)
	if err != nil {
		return Outcome{}, err
	}
	if fresh {
		// Written with the rest of the status, which speaks of no generation yet.
		project.Status.Namespace = &v1alpha1.ProjectNamespace{Name: namespace.Name, UID: namespace.UID, Origin: claim.Origin()}
	}
	// A namespace is governed only after its quota counts. One that is governed
	// stays so while a changed quota is counted anew: its GPU pods are refused
	// meanwhile, and would not be without the label.
	if outcome.counted() || governed {
		if err := r.label(ctx, project, department, outcome.Pools, namespace, claim); err != nil {
			return Outcome{}, err
		}
	}
	return outcome, nil
}

// department is the project's, or the refusal where there is none.
func (r *Reconciler) department(ctx context.Context, project *v1alpha1.Project) (*v1alpha1.Department, *tenancy.Refusal, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department)
	if apierrors.IsNotFound(err) {
		return nil, &tenancy.Refusal{
			Reason:  v1alpha1.ReasonDepartmentMissing,
			Message: fmt.Sprintf("department %s does not exist; create it, or set spec.department to one that does", project.Spec.Department),
		}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading department %s: %w", project.Spec.Department, err)
	}
	return &department, nil, nil
}
