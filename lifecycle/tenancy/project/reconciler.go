// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package project gives each Project its namespace, with the quota and queues that
// policies render for it.
//
// It reads Projects, Departments, NodePools and Namespaces. It creates or adopts the
// namespace, applies the rendered objects, and labels the namespace as governed once
// its quota is counted. It writes the Project's status: until a quota counts a node pool,
// GPU pods are refused there; Uncounted lists GPU pods that are older than the quota, and those that
// are gone from the API while a node still reports their GPUs as held. Their
// share is subtracted from the rendered limit, and a namespace in which they exceed
// the limit is not governed until there is room. When a Project is deleted, rights and
// new volume claims end first. Its namespace is deleted if Sluice created it and it has
// no volume claims; else it stays without its workloads, the labels and the rendered
// objects, once no GPU pod is left in it. A Notice reports to the owners and the
// department's contacts what ended and what stays.
//
// The package never deletes a namespace that Sluice did not create, or a volume: it stops
// the workloads with which Kubernetes would delete volume claims. Which
// namespace is a project's does not depend on labels. Usage comes from the quota; the
// package itself counts only pods that the quota does not.
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

	"sluice.dev/api/policytime"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/engine"
)

// Reconciler applies the namespace of every Project and the objects in it.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale read would do harm.
	Live client.Reader
	// Policies are those in force; they render the project's objects.
	Policies *engine.Engine
	// PolicyChanges reports when other policies are in force.
	PolicyChanges apply.PolicyChanges
	// Queues lists the objects of queue kinds.
	Queues *apply.QueueWatcher
	// Events records what the controller did to users' objects.
	Events events.EventRecorder
	// Clock is policy time, in which phases are recorded.
	Clock policytime.Clock
	// Pods are the GPU pods, which end before a namespace is released that stays.
	Pods GPUPods
	// Notices records the Notice of a deletion.
	Notices notification.Recorder
	// Access revokes the rights of members before anything else of a project is deleted.
	Access AccessRevoker
	// Stopper stops the workloads that are not deleted with their project.
	Stopper Stopper

	cache         apply.Cache
	occupied      occupied
	granted       granted
	claimsRefused claimsRefused
}

// AccessRevoker revokes the rights of a project's members: a rbac.Manager.
type AccessRevoker interface {
	// Revoke deletes the roles and bindings of the project.
	Revoke(ctx context.Context, project *v1alpha1.Project) error
	// RevokeNamespace deletes the role bindings that others created in the project's namespace since the
	// project exists.
	RevokeNamespace(ctx context.Context, project *v1alpha1.Project, namespace string) error
}

// maxConcurrentReconciles is the number of projects that are reconciled at a time. Each
// waits for the API server most of the time.
const maxConcurrentReconciles = 16

// SetupWithManager makes the manager run r once policies are loaded and the served queue
// kinds are known.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// Policies read labels and annotations too.
	declared := predicate.Or[client.Object](specOrDeletionChanged, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		Named("project").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		For(&v1alpha1.Project{}, builder.WithPredicates(predicate.Or[client.Object](declared, closedChanged))).
		Watches(&corev1.Namespace{}, r.namespaceHandler(), builder.WithPredicates(namespaceCreatedExternally)).
		Watches(&v1alpha1.Department{}, r.departmentHandler(), builder.WithPredicates(declared)).
		Watches(&v1alpha1.NodePool{}, r.nodePoolHandler(), builder.WithPredicates(nodePoolInputChanged)).
		Watches(&v1alpha1.GPUNode{}, r.gpuNodeHandler()).
		Watches(&v1alpha1.NodePool{}, r.nodePoolResizeHandler(), builder.WithPredicates(nodePoolResized)).
		Watches(&v1alpha1.Project{}, r.namespaceConflictHandler(), builder.WithPredicates(projectDeleted))
	b = b.Watches(&corev1.ResourceQuota{}, r.otherQuotaHandler(), builder.WithPredicates(createdOrDeleted))
	for _, object := range apply.WatchedObjects() {
		b = b.Watches(object, renderedObjectHandler{})
	}
	return b.
		WatchesRawSource(r.Queues.Source(apply.SubjectProject, r.allRequests)).
		WatchesRawSource(apply.PolicyChangeSource(r.PolicyChanges, r.allRequests)).
		Complete(apply.RequeueOnConflict(r))
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, req.NamespacedName, &project); err != nil {
		if apierrors.IsNotFound(err) {
			r.granted.forget(req.Name)
			err = r.applier().RemoveOrphans(ctx, apply.ClusterTarget(apply.SubjectProject, req.Name), &project)
		}
		return reconcile.Result{}, err
	}
	if !project.DeletionTimestamp.IsZero() {
		return r.reconcileLiveDelete(ctx, &project)
	}
	// The finalizer comes before the first object, so that the object is removed.
	before := project.DeepCopy()
	if controllerutil.AddFinalizer(&project, v1alpha1.FinalizerProject) {
		if err := r.Client.Patch(ctx, &project, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{}, fmt.Errorf("add the finalizer to project %s: %w", project.Name, err)
		}
	}
	outcome, err := r.reconcileProject(ctx, &project)
	if err != nil {
		return reconcile.Result{}, err
	}
	return outcome.requeue(), r.updateStatus(ctx, &project, outcome)
}

// reconcileProject gives the project its namespace, then what policies render into it,
// then the labels. A refused claim waits for a change of the project, the namespace or
// the department.
func (r *Reconciler) reconcileProject(ctx context.Context, project *v1alpha1.Project) (Outcome, error) {
	department, missing, err := r.getDepartment(ctx, project)
	if missing != nil || err != nil {
		return Outcome{ClaimError: missing}, err
	}
	if refusal, err := r.checkNamespaceConflict(ctx, project); refusal != nil || err != nil {
		return Outcome{ClaimError: refusal}, err
	}
	namespace, claim, refusal, err := r.reconcileNamespace(ctx, project)
	if refusal != nil || err != nil {
		return Outcome{ClaimError: refusal}, err
	}
	// The status records the namespace before the project has objects in it, so that
	// these are removed after a crash in between. A created namespace has an annotation
	// from the start.
	fresh := claim == tenancy.ClaimCreate && project.Status.ObservedGeneration == 0
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
		// It is written with the rest of the status, which has no generation yet.
		project.Status.Namespace = &v1alpha1.ProjectNamespace{Name: namespace.Name, UID: namespace.UID, Origin: claim.Origin()}
	}
	// A namespace is governed only after its quota counts. It stays governed while a
	// changed quota is counted: GPU pods are refused only with the label.
	if outcome.isQuotaApplied() || governed {
		if err := r.labelNamespace(ctx, project, department, outcome.Pools, namespace, claim); err != nil {
			return Outcome{}, err
		}
	}
	return outcome, nil
}

// getDepartment returns the project's department, or a refusal if it does not exist.
func (r *Reconciler) getDepartment(ctx context.Context, project *v1alpha1.Project) (*v1alpha1.Department, *tenancy.ClaimError, error) {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department)
	if apierrors.IsNotFound(err) {
		return nil, &tenancy.ClaimError{
			Reason:  v1alpha1.ReasonDepartmentNotFound,
			Message: fmt.Sprintf("department %s does not exist; create it, or set spec.department to one that does", project.Spec.Department),
		}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read department %s: %w", project.Spec.Department, err)
	}
	return &department, nil, nil
}
