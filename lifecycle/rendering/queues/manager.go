// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queues applies what policies render for Departments and NodePools: the
// cohorts, flavors and queues of schedulers.
//
// It reads Departments, NodePools and Projects, and the policies in force. It applies
// and prunes the objects, which are cluster-scoped, keeps a finalizer on the owner
// while there are any, and reports them in the condition QueueApplied. The objects of
// projects are applied with their namespaces.
package queues

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

// Manager applies and removes the rendered objects of one owner.
type Manager struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale read would do harm.
	Live client.Reader
	// Policies are those in force.
	Policies *engine.Engine
	// PolicyChanges reports when other policies are in force.
	PolicyChanges apply.PolicyChanges
	// Queues lists the objects of queue kinds.
	Queues *apply.QueueWatcher
	// Cache remembers what was applied; nil remembers nothing.
	Cache *apply.Cache
}

// The time until a subject is reconciled again, in machine time: no event announces that
// another person's object is gone, or that a scheduler is healthy again.
const (
	failureRequeue          = time.Minute
	transientFailureRequeue = 5 * time.Second
)

func (m *Manager) applier() *apply.Applier {
	return &apply.Applier{Client: m.Client, Live: m.Live, Queues: m.Queues, Cache: m.Cache}
}

// reconcileObjects applies what policies render for the subject, which is object, and
// updates its condition.
func (m *Manager) reconcileObjects(
	ctx context.Context, object client.Object, subject apply.Subject, conditions []metav1.Condition,
) (reconcile.Result, error) {
	desired, err := apply.Render(ctx, m.Policies, subject)
	if err != nil {
		return reconcile.Result{}, err
	}
	// The finalizer comes before the first object, so that the object is removed.
	if len(desired.Objects) > 0 {
		if err := m.addFinalizer(ctx, object); err != nil {
			return reconcile.Result{}, err
		}
	}
	applied, err := m.applier().Apply(ctx, subject.Target(), desired)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(desired.Objects) == 0 && len(applied.Failures) == 0 {
		if err := m.reconcileDelete(ctx, object, subject.Target()); err != nil {
			return reconcile.Result{}, err
		}
	}
	return requeueAfterFailures(applied.Failures), m.updateCondition(ctx, object, subject.Target(), applied, conditions)
}

func requeueAfterFailures(failures []apply.Failure) reconcile.Result {
	switch {
	case len(failures) == 0:
		return reconcile.Result{}
	case slices.ContainsFunc(failures, func(f apply.Failure) bool { return f.Transient }):
		return reconcile.Result{RequeueAfter: transientFailureRequeue}
	default:
		return reconcile.Result{RequeueAfter: failureRequeue}
	}
}

// removeOrphans deletes what is left of a subject that the cache does not have. The
// object is an empty one of its kind.
func (m *Manager) removeOrphans(ctx context.Context, target apply.Target, object client.Object, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	return m.applier().RemoveOrphans(ctx, target, object)
}

// addFinalizer keeps the subject until its rendered objects are deleted.
func (m *Manager) addFinalizer(ctx context.Context, object client.Object) error {
	return m.patchFinalizer(ctx, object, controllerutil.AddFinalizer, "add the finalizer to")
}

// reconcileDelete deletes what was rendered for the subject and removes the finalizer.
func (m *Manager) reconcileDelete(ctx context.Context, object client.Object, target apply.Target) error {
	if !controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerRendered) {
		return nil
	}
	if err := m.applier().Remove(ctx, target); err != nil {
		return err
	}
	return client.IgnoreNotFound(m.patchFinalizer(ctx, object, controllerutil.RemoveFinalizer, "remove the finalizer of"))
}

func (m *Manager) patchFinalizer(
	ctx context.Context, object client.Object, change func(client.Object, string) bool, operation string,
) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok || !change(object, v1alpha1.FinalizerRendered) {
		return nil
	}
	if err := m.Client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s %s: %w", operation, object.GetName(), err)
	}
	return nil
}

// fieldManager owns the condition QueueApplied.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-queues"

// updateCondition applies the condition QueueApplied if it changed.
func (m *Manager) updateCondition(
	ctx context.Context, object client.Object, target apply.Target, applied apply.Result, cached []metav1.Condition,
) error {
	conditions := slices.Clone(cached)
	condition := apply.QueueAppliedCondition(applied.Queues, applied.Failures)
	condition.ObservedGeneration, condition.LastTransitionTime = object.GetGeneration(), metav1.NewTime(policytime.MachineNow())
	meta.SetStatusCondition(&conditions, condition)
	if err := apply.Status(ctx, m.Client, fieldManager, statusFields(object, cached), statusFields(object, conditions)); err != nil {
		return fmt.Errorf("write the status of %s: %w", target, err)
	}
	return nil
}

// statusFields returns the condition of this controller for a Department or NodePool.
func statusFields(object client.Object, conditions []metav1.Condition) runtime.ApplyConfiguration {
	own := apply.Conditions(conditions, v1alpha1.ConditionQueueApplied)
	if _, isPool := object.(*v1alpha1.NodePool); isPool {
		return ac.NodePool(object.GetName()).WithStatus(ac.NodePoolStatus().WithConditions(own...))
	}
	return ac.Department(object.GetName()).WithStatus(ac.DepartmentStatus().WithConditions(own...))
}

// maxConcurrentReconciles is the number of subjects of a kind that are reconciled at a time.
const maxConcurrentReconciles = 4

// relatedChangeDelay is the time for which changes of other objects are collected, in machine
// time: a thousand projects of a department may be created at once, and their
// guarantees are added up.
const relatedChangeDelay = 200 * time.Millisecond

// declarationChanged passes changes of a subject by users, and its deletion. Policies
// read labels and annotations, too.
var declarationChanged = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
	predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	},
)

// projectQuotaChanged passes a project that is created, deleted or moved, or whose quota changed.
var projectQuotaChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return !ok || !ok2 || before.Spec.Department != after.Spec.Department ||
		!equality.Semantic.DeepEqual(before.Spec.NodePools, after.Spec.NodePools)
}}

// nodePoolInputChanged passes changes of a node pool that policies see.
var nodePoolInputChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.NodePool)
	after, ok2 := e.ObjectNew.(*v1alpha1.NodePool)
	return !ok || !ok2 || !equality.Semantic.DeepEqual(input.NewNodePool(before, nil, nil), input.NewNodePool(after, nil, nil))
}}

// delayedHandler enqueues the requests of an object before and after its change, after
// relatedChangeDelay.
func delayedHandler(requests handler.MapFunc) handler.EventHandler {
	enqueue := func(ctx context.Context, q apply.RequestQueue, objects ...client.Object) {
		for _, object := range objects {
			for _, request := range requests(ctx, object) {
				apply.EnqueueAfter(q, request.Name, relatedChangeDelay)
			}
		}
	}
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q apply.RequestQueue) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q apply.RequestQueue) {
			enqueue(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q apply.RequestQueue) { enqueue(ctx, q, e.Object) },
	}
}
