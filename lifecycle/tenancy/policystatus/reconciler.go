// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy shows the policies that are in force as Policy objects.
//
// Enters: the policies that are built in, and what the engine made of these and
// of the Policy objects (package policies/store). Leaves: a Policy object for each
// built-in policy, so that `kubectl get policies` lists all that is enforced; and
// the status of every Policy object: whether it compiles, where it does not, and
// which generation is in force. Ready says whether pods are judged by it: not where
// another policy stands in its place, and not with parameters that are wrong.
//
// The objects of built-in policies are for reading: what is changed there comes
// back, except for spec.parameters, which is the platform team's and is never
// written here. Objects that mirror a policy which is no longer built in are
// deleted.
//
// It never decides what is in force, and never writes another team's spec.
package policystatus

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/conflict"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
)

// Reports are what an engine made of the policies: a store.Store.
type Reports interface {
	// OnReports calls the function with the reports of each update, and at once
	// with the last, where there was one.
	OnReports(listener func([]engine.Report))
	// Report is what became of one policy in the last update.
	Report(name string) (engine.Report, bool)
	// Replacements are the policies in the place of a built-in one in the last update.
	Replacements(builtIn string) []store.Replacement
}

// Reconciler keeps the mirrors of built-in policies and the status of every
// Policy.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// BuiltIn are the policies that are mirrored.
	BuiltIn []engine.Source
	// Reports are where the status comes from.
	Reports Reports

	builtIn map[string]engine.Source
}

// SetupWithManager makes the manager run r. The error names the built-in policies
// that no object can show.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := validateBuiltIn(r.BuiltIn); err != nil {
		return err
	}
	r.builtIn = make(map[string]engine.Source, len(r.BuiltIn))
	for _, policy := range r.BuiltIn {
		r.builtIn[policy.Name] = policy
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("policy").
		For(&v1alpha1.Policy{}).
		// Built-in policies are in every report, so this makes the mirrors, too.
		WatchesRawSource(source.Func(r.watchReports)).
		Complete(conflict.WithRetry(r))
}

// watchReports asks for every policy after each update of the engine.
func (r *Reconciler) watchReports(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.Reports.OnReports(func(reports []engine.Report) {
		for _, report := range reports {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: report.Name}})
		}
	})
	return nil
}

// Reconcile implements reconcile.Reconciler for the policy of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var object *v1alpha1.Policy
	var found v1alpha1.Policy
	switch err := r.Client.Get(ctx, req.NamespacedName, &found); {
	case err == nil:
		object = &found
	case !apierrors.IsNotFound(err):
		return reconcile.Result{}, err
	}
	builtIn, isBuiltIn := r.builtIn[req.Name]
	switch {
	case isBuiltIn && (object == nil || !isUpToDate(object, builtIn)):
		// Its event brings it here again, for its status.
		return reconcile.Result{}, r.applyMirror(ctx, object, builtIn)
	case object == nil:
		return reconcile.Result{}, nil
	case !isBuiltIn && isMirror(object):
		return reconcile.Result{}, r.deleteMirror(ctx, object)
	}
	return reconcile.Result{}, r.updateStatus(ctx, object)
}

// applyMirror makes an object show a built-in policy, whatever it showed before.
func (r *Reconciler) applyMirror(ctx context.Context, object *v1alpha1.Policy, builtIn engine.Source) error {
	wanted, err := newMirror(builtIn)
	if err != nil {
		return err
	}
	if object != nil {
		ctrl.LoggerFrom(ctx).Info("the mirror of a built-in policy is put right", "policy", builtIn.Name)
		if change := foreignFieldsPatch(object, builtIn); change != nil {
			err := r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, change), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
			if err != nil {
				return fmt.Errorf("putting the mirror of policy %s right: %w", builtIn.Name, err)
			}
		}
	}
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying the mirror of policy %s: %w", builtIn.Name, err)
	}
	return nil
}

// deleteMirror deletes the mirror of a policy that is no longer built in, as it was
// read: should somebody have made it their own meanwhile, it stays.
func (r *Reconciler) deleteMirror(ctx context.Context, object *v1alpha1.Policy) error {
	seen := client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}
	if err := r.Client.Delete(ctx, object, seen); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the mirror of policy %s, which is no longer built in: %w", object.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("deleted the mirror of a policy that is no longer built in", "policy", object.Name)
	return nil
}

// updateStatus writes the status, where the engine's report changed it.
func (r *Reconciler) updateStatus(ctx context.Context, object *v1alpha1.Policy) error {
	report, ok := r.Reports.Report(object.Name)
	if !ok || report.Generation != object.Generation {
		return nil // one that speaks of this generation will come, and ask again
	}
	status := BuildStatus(object, report, r.Reports.Replacements(object.Name), metav1.NewTime(policytime.MachineNow()))
	if equality.Semantic.DeepEqual(status, object.Status) {
		return nil
	}
	object.Status = status
	// An update with the resource version that was read: should the policy have
	// changed meanwhile, the next event brings it here again.
	if err := r.Client.Status().Update(ctx, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of policy %s: %w", object.Name, err)
	}
	return nil
}
