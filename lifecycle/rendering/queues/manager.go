// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queues gives each Department and each NodePool what policies render for
// it in the engines of its pools: cohorts, flavors, queues.
//
// Enters: Departments, NodePools and Projects, as watched, and the policies in
// force. Leaves: the objects, cluster-wide and under the department's or the pool's
// own name, applied, kept and taken back; a finalizer where there is anything to
// take back; and the condition QueueApplied, which says what is there and what
// could not be had.
//
// It never writes for a project, whose objects are kept with its namespace, and
// never keeps a department or a pool from going for another reason than that its
// own objects are still there.
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

// Manager has what it takes to keep what policies render.
type Manager struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale answer would do harm.
	Live client.Reader
	// Policies are those in force.
	Policies *engine.Engine
	// PolicyChanges tells when other policies are in force.
	PolicyChanges apply.PolicyChanges
	// Queues knows what is there of the kinds of engines.
	Queues *apply.QueueWatcher
	// Cache spares requests that would change nothing; nil remembers nothing.
	Cache *apply.Cache
}

// After how long a subject is looked at again, in machine time: nobody tells when
// somebody else's object goes, or an engine is well again.
const (
	failureRequeue          = time.Minute
	transientFailureRequeue = 5 * time.Second
)

func (k *Manager) applier() *apply.Applier {
	return &apply.Applier{Client: k.Client, Live: k.Live, Queues: k.Queues, Cache: k.Cache}
}

// reconcileObjects makes the cluster have what policies render for the subject, which object is,
// and says so in its conditions, which are a part of it.
func (k *Manager) reconcileObjects(ctx context.Context, object client.Object, subject apply.Subject, conditions *[]metav1.Condition) (reconcile.Result, error) {
	wanted, err := apply.Render(ctx, k.Policies, subject)
	if err != nil {
		return reconcile.Result{}, err
	}
	// Before anything is made there must be something that takes it back.
	if len(wanted.Objects) > 0 {
		if err := k.addFinalizer(ctx, object); err != nil {
			return reconcile.Result{}, err
		}
	}
	applied, err := k.applier().Apply(ctx, subject.Target(), wanted)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(wanted.Objects) == 0 && len(applied.Failures) == 0 {
		if err := k.reconcileDelete(ctx, object, subject.Target()); err != nil {
			return reconcile.Result{}, err
		}
	}
	return requeueAfterFailures(applied.Failures), k.updateCondition(ctx, object, subject.Target(), applied, conditions)
}

func requeueAfterFailures(faults []apply.Failure) reconcile.Result {
	switch {
	case len(faults) == 0:
		return reconcile.Result{}
	case slices.ContainsFunc(faults, func(f apply.Failure) bool { return f.Transient }):
		return reconcile.Result{RequeueAfter: transientFailureRequeue}
	default:
		return reconcile.Result{RequeueAfter: failureRequeue}
	}
}

// removeOrphans takes back what may be left of a subject that a cache does not have. The
// object is an empty one of its kind.
func (k *Manager) removeOrphans(ctx context.Context, place apply.Target, object client.Object, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	return k.applier().RemoveOrphans(ctx, place, object)
}

// addFinalizer keeps the subject until all that was rendered for it is taken back.
func (k *Manager) addFinalizer(ctx context.Context, object client.Object) error {
	return k.patchFinalizer(ctx, object, controllerutil.AddFinalizer, "adding the finalizer to")
}

// reconcileDelete takes back all that was rendered for the subject, and lets it go.
func (k *Manager) reconcileDelete(ctx context.Context, object client.Object, place apply.Target) error {
	if !controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerRendered) {
		return nil
	}
	if err := k.applier().Remove(ctx, place); err != nil {
		return err
	}
	return client.IgnoreNotFound(k.patchFinalizer(ctx, object, controllerutil.RemoveFinalizer, "removing the finalizer of"))
}

func (k *Manager) patchFinalizer(ctx context.Context, object client.Object, change func(client.Object, string) bool, doing string) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok || !change(object, v1alpha1.FinalizerRendered) {
		return nil
	}
	if err := k.Client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s %s: %w", doing, object.GetName(), err)
	}
	return nil
}

// updateCondition writes the condition, where it changed.
func (k *Manager) updateCondition(ctx context.Context, object client.Object, place apply.Target, applied apply.Result, conditions *[]metav1.Condition) error {
	before := slices.Clone(*conditions)
	condition := apply.QueueAppliedCondition(applied.Queues, applied.Failures)
	condition.ObservedGeneration, condition.LastTransitionTime = object.GetGeneration(), metav1.NewTime(policytime.MachineNow())
	meta.SetStatusCondition(conditions, condition)
	if equality.Semantic.DeepEqual(before, *conditions) {
		return nil
	}
	if err := k.Client.Status().Update(ctx, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of %s: %w", place, err)
	}
	return nil
}

// maxConcurrentReconciles are how many subjects of a kind are worked on at a time.
const maxConcurrentReconciles = 4

// relatedChangeDelay is for how long changes of others are gathered, in machine time: a
// department hears of a thousand projects that are made at once, and sums up what
// all of them are promised.
const relatedChangeDelay = 200 * time.Millisecond

// declarationChanged passes what people changed of a subject, and its deletion. Policies read
// labels and annotations too.
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

// projectQuotaChanged passes a project that comes, goes, moves, or is guaranteed something else.
var projectQuotaChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.Project)
	after, ok2 := e.ObjectNew.(*v1alpha1.Project)
	return !ok || !ok2 || before.Spec.Department != after.Spec.Department ||
		!equality.Semantic.DeepEqual(before.Spec.NodePools, after.Spec.NodePools)
}}

// nodePoolInputChanged passes what changes of a node pool in the eyes of policies.
var nodePoolInputChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.NodePool)
	after, ok2 := e.ObjectNew.(*v1alpha1.NodePool)
	return !ok || !ok2 || !equality.Semantic.DeepEqual(input.NewNodePool(before, nil, nil), input.NewNodePool(after, nil, nil))
}}

// delayedHandler brings back those that a change concerns, of what was and of what is, a
// little later.
func delayedHandler(whose handler.MapFunc) handler.EventHandler {
	tell := func(ctx context.Context, q apply.RequestQueue, objects ...client.Object) {
		for _, object := range objects {
			for _, request := range whose(ctx, object) {
				apply.EnqueueAfter(q, request.Name, relatedChangeDelay)
			}
		}
	}
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q apply.RequestQueue) { tell(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q apply.RequestQueue) {
			tell(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q apply.RequestQueue) { tell(ctx, q, e.Object) },
	}
}
