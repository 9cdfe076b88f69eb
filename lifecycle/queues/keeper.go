// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
	"sluice.dev/lifecycle/render/queuekinds"
	"sluice.dev/policies/engine"
)

// Keeper has what it takes to keep what policies render.
type Keeper struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server, where a stale answer would do harm.
	Live client.Reader
	// Policies are those in force.
	Policies *engine.Engine
	// Changes tells when other policies are in force.
	Changes render.Changes
	// Queues knows what is there of the kinds of engines.
	Queues *queuekinds.Watch
	// Memory spares requests that would change nothing; nil remembers nothing.
	Memory *render.Memory
}

// After how long a subject is looked at again, in machine time: nobody tells when
// somebody else's object goes, or an engine is well again.
const (
	retryFault   = time.Minute
	retryPassing = 5 * time.Second
)

func (k *Keeper) applier() *render.Applier {
	return &render.Applier{Client: k.Client, Live: k.Live, Queues: k.Queues, Memory: k.Memory}
}

// keep makes the cluster have what policies render for the subject, which object is,
// and says so in its conditions, which are a part of it.
func (k *Keeper) keep(ctx context.Context, object client.Object, subject render.Subject, conditions *[]metav1.Condition) (reconcile.Result, error) {
	wanted, err := render.Ask(ctx, k.Policies, subject)
	if err != nil {
		return reconcile.Result{}, err
	}
	// Before anything is made there must be something that takes it back.
	if len(wanted.Objects) > 0 {
		if err := k.hold(ctx, object); err != nil {
			return reconcile.Result{}, err
		}
	}
	applied, err := k.applier().Apply(ctx, subject.Place(), wanted)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(wanted.Objects) == 0 && len(applied.Faults) == 0 {
		if err := k.letGo(ctx, object, subject.Place()); err != nil {
			return reconcile.Result{}, err
		}
	}
	return again(applied.Faults), k.tell(ctx, object, subject.Place(), applied, conditions)
}

func again(faults []render.Fault) reconcile.Result {
	switch {
	case len(faults) == 0:
		return reconcile.Result{}
	case slices.ContainsFunc(faults, func(f render.Fault) bool { return f.Passing }):
		return reconcile.Result{RequeueAfter: retryPassing}
	default:
		return reconcile.Result{RequeueAfter: retryFault}
	}
}

// gone takes back what may be left of a subject that a cache does not have. The
// object is an empty one of its kind.
func (k *Keeper) gone(ctx context.Context, place render.Place, object client.Object, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	return k.applier().RemoveOrphans(ctx, place, object)
}

// hold keeps the subject until all that was rendered for it is taken back.
func (k *Keeper) hold(ctx context.Context, object client.Object) error {
	return k.finalizer(ctx, object, controllerutil.AddFinalizer, "adding the finalizer to")
}

// letGo takes back all that was rendered for the subject, and lets it go.
func (k *Keeper) letGo(ctx context.Context, object client.Object, place render.Place) error {
	if !controllerutil.ContainsFinalizer(object, v1alpha1.FinalizerRendered) {
		return nil
	}
	if err := k.applier().Remove(ctx, place); err != nil {
		return err
	}
	return client.IgnoreNotFound(k.finalizer(ctx, object, controllerutil.RemoveFinalizer, "removing the finalizer of"))
}

func (k *Keeper) finalizer(ctx context.Context, object client.Object, change func(client.Object, string) bool, doing string) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok || !change(object, v1alpha1.FinalizerRendered) {
		return nil
	}
	if err := k.Client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s %s: %w", doing, object.GetName(), err)
	}
	return nil
}

// tell writes the condition, where it changed.
func (k *Keeper) tell(ctx context.Context, object client.Object, place render.Place, applied render.Applied, conditions *[]metav1.Condition) error {
	before := slices.Clone(*conditions)
	condition := render.QueueApplied(applied.Queues, applied.Faults)
	condition.ObservedGeneration, condition.LastTransitionTime = object.GetGeneration(), metav1.NewTime(clock.MachineNow())
	meta.SetStatusCondition(conditions, condition)
	if equality.Semantic.DeepEqual(before, *conditions) {
		return nil
	}
	if err := k.Client.Status().Update(ctx, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of %s: %w", place, err)
	}
	return nil
}
