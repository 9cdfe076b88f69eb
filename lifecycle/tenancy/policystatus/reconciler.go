// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policystatus shows the policies in force as Policy objects.
//
// It applies a Policy object for each built-in policy, so that `kubectl get policies`
// lists all that is enforced, and deletes those that are no longer built in. It writes
// the status of every Policy: whether it compiles, the errors, and which generation is
// in force. It keeps the last good version of each in a ControllerRevision, for the engines
// that start while the present version has problems. Ready reports whether pods are evaluated
// by it: not if another policy replaces it, and not with invalid parameters. It adds up the
// violations that the webhook's replicas counted, and the evaluations that took too long.
//
// The package restores a changed mirror, except for spec.parameters, which belong to
// the platform team. Package policies/store decides which policies are in force.
package policystatus

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/data"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
	"sluice.dev/policies/store"
)

// Reports are the engine's reports on the policies: a store.Store.
type Reports interface {
	// OnReports calls the listener with the reports of each update, and at once with
	// those of the last one.
	OnReports(listener func([]engine.Report))
	// Report returns the report on a policy in the last update.
	Report(name string) (engine.Report, bool)
	// OnDataFaults calls the listener with the ConfigMaps whose present version policies do not read.
	OnDataFaults(listener func([]data.Fault))
	// Replacements returns the policies that replace a built-in one.
	Replacements(builtIn string) []store.Replacement
}

// Reconciler applies the mirrors of built-in policies and writes the status of every
// Policy.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// BuiltIn are the policies that are mirrored.
	BuiltIn []engine.Source
	// Reports are the source of the status.
	Reports Reports
	// Policies are the policies in force in this process.
	Policies *engine.Engine
	// Events records on a Policy when its evaluations take too long.
	Events events.EventRecorder

	builtIn map[string]engine.Source
	// decoded are the reports of replicas, by Lease. Only Reconcile uses them.
	decoded map[string]decodedReport
	// dataFaults are the faults of ConfigMaps that are recorded. Only recordDataFaults uses them.
	dataFaults []data.Fault
}

// SetupWithManager makes the manager run r. It returns an error for built-in policies
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
		Owns(&appsv1.ControllerRevision{}).
		// Built-in policies are in every report, so that this creates the mirrors, too.
		WatchesRawSource(source.Func(r.watchReports)).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(r.countedPolicies)).
		Complete(apply.RequeueOnConflict(r))
}

// watchReports enqueues every policy after each update of the engine.
func (r *Reconciler) watchReports(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.Reports.OnReports(func(reports []engine.Report) {
		for _, report := range reports {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: report.Name}})
		}
	})
	r.Reports.OnDataFaults(r.recordDataFaults)
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
		// The event of the mirror starts the pass that writes the status.
		return reconcile.Result{}, r.applyMirror(ctx, object, builtIn)
	case object == nil:
		return reconcile.Result{}, nil
	case !isBuiltIn && isMirror(object):
		return reconcile.Result{}, r.deleteMirror(ctx, object)
	}
	result, err := r.updateStatus(ctx, object)
	if err != nil {
		return reconcile.Result{}, err
	}
	return result, r.reconcileRevision(ctx, object)
}

// applyMirror applies the mirror of a built-in policy and removes foreign fields.
func (r *Reconciler) applyMirror(ctx context.Context, object *v1alpha1.Policy, builtIn engine.Source) error {
	desired, err := newMirror(builtIn)
	if err != nil {
		return err
	}
	if object != nil {
		ctrl.LoggerFrom(ctx).Info("Restoring mirror of built-in policy", "policy", builtIn.Name)
		if change := foreignFieldsPatch(object, builtIn); change != nil {
			err := r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, change), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
			if err != nil {
				return fmt.Errorf("restore the mirror of policy %s: %w", builtIn.Name, err)
			}
		}
	}
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
		client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply the mirror of policy %s: %w", builtIn.Name, err)
	}
	return nil
}

// deleteMirror deletes the mirror of a policy that is no longer built in. A mirror that
// a user changed meanwhile stays.
func (r *Reconciler) deleteMirror(ctx context.Context, object *v1alpha1.Policy) error {
	asRead := client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}
	if err := r.Client.Delete(ctx, object, asRead); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the mirror of policy %s, which is no longer built in: %w", object.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted mirror of policy that is no longer built in", "policy", object.Name)
	return nil
}

// updateStatus writes the status if the reports of the engine or of the webhook's replicas changed it. What these counted counts for
// a time only.
func (r *Reconciler) updateStatus(ctx context.Context, object *v1alpha1.Policy) (result reconcile.Result, err error) {
	report, ok := r.Reports.Report(object.Name)
	if !ok || report.Generation != object.Generation {
		return result, nil // the report on this generation will enqueue the policy
	}
	now := metav1.NewTime(policytime.MachineNow())
	before := object.Status
	status := BuildStatus(object, report, r.Reports.Replacements(object.Name), now)
	if set, err := r.Policies.Current(); err == nil {
		version, found := set.Version(object.Name)
		if report.Active && object.Spec.Type != v1alpha1.PolicyTypeLibrary && (!found || version.Generation != report.EnforcedGeneration) {
			return result, nil // the report on this version will enqueue the policy
		}
		reports, err := r.readReports(ctx, now.Time)
		if err != nil {
			return result, err
		}
		total := replica.Sum(reports, version, now.Time)
		addCounts(&status, total, set.Requires(object.Name), now)
		if len(total.Violations)+len(total.TimedOut) > 0 {
			result.RequeueAfter = recountInterval
		}
	}
	if equality.Semantic.DeepEqual(status, before) {
		return result, nil
	}
	object.Status = status
	if err := r.Client.Status().Update(ctx, object); client.IgnoreNotFound(err) != nil {
		return result, fmt.Errorf("write the status of policy %s: %w", object.Name, err)
	}
	r.recordTimeOuts(object, before.Conditions, status.Conditions)
	return result, nil
}

// recountInterval is the time after which counts are added up again, in machine time.
const recountInterval = 5 * time.Minute

// recordTimeOuts records an event when evaluations begin to take too long, after an hour without any.
func (r *Reconciler) recordTimeOuts(object *v1alpha1.Policy, before, after []metav1.Condition) {
	was, is := meta.FindStatusCondition(before, v1alpha1.ConditionTimedOut), meta.FindStatusCondition(after, v1alpha1.ConditionTimedOut)
	if was == nil && is != nil {
		r.Events.Eventf(object, nil, corev1.EventTypeWarning, reasonTimedOut, "Evaluate", "%s", is.Message)
	}
}

// recordDataFaults records an event for each ConfigMap of policies that has a new fault.
func (r *Reconciler) recordDataFaults(faults []data.Fault) {
	for _, fault := range faults {
		if slices.Contains(r.dataFaults, fault) {
			continue
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: fault.Name, UID: fault.UID}}
		r.Events.Eventf(object, nil, corev1.EventTypeWarning, reasonDataInvalid, "Read", "%s", v1alpha1.TruncateText(fault.Message, maxEventMessage))
	}
	r.dataFaults = faults
}

// maxEventMessage is the longest message of an event that the API server accepts, in bytes.
const maxEventMessage = 1024

// The reasons of events on a Policy, and on a ConfigMap that policies read.
const (
	reasonDataInvalid = "PolicyDataInvalid"
	reasonTimedOut    = "PolicyTimedOut"
)
