// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/rendering/conflict"
	timelimitcontroller "sluice.dev/lifecycle/timelimit/controller"
)

// Reconciler answers Extensions of workloads' time.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server: what is granted is counted there.
	Live client.Reader
	// Notices records what people are told.
	Notices notification.Recorder
	// Events tells people what was done to their objects.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock
}

// request is an Extension with all that it is answered by.
type request struct {
	*v1alpha1.Extension
	// clock is that of the workload; nil where the workload is gone.
	clock      *v1alpha1.WorkloadClock
	project    *v1alpha1.Project
	department *v1alpha1.Department
	now        time.Time
}

// Reconcile implements reconcile.Reconciler for the Extension of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	asked, err := r.observe(ctx, req.NamespacedName)
	if asked == nil || err != nil {
		return reconcile.Result{}, err
	}
	switch status := &asked.Status; {
	case status.Decision == "" && asked.clock == nil:
		err = r.recordDecision(ctx, asked, v1alpha1.ExtensionDenied, explanation{code: mail.CauseWorkloadNotFound})
	case status.Decision == "" && len(asked.clock.Status.Extensions) >= v1alpha1.MaxClockExtensions:
		err = r.recordDecision(ctx, asked, v1alpha1.ExtensionDenied, explanation{code: mail.CauseExtensionLimitReached, used: len(asked.clock.Status.Extensions)})
	case status.Decision == "" && !awaitsDecision(asked.Extension):
		err = r.evaluateSelfService(ctx, asked)
	case status.Decision == "", isDecisionAnnounced(asked.Extension):
	case status.Decision == v1alpha1.ExtensionDenied:
		err = r.announceDecision(ctx, asked, metav1.ConditionFalse, v1alpha1.ReasonDenied, "it was refused")
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionApplied):
		err = r.announceDecision(ctx, asked, metav1.ConditionTrue, "", "")
	case asked.clock == nil:
		err = r.announceDecision(ctx, asked, metav1.ConditionFalse, v1alpha1.ReasonTargetNotFound, explanation{code: mail.CauseWorkloadNotFound}.String())
	}
	return reconcile.Result{}, err
}

// observe is the Extension as the API server has it, with what it is answered by; nil
// where there is nothing to answer, or nobody to.
func (r *Reconciler) observe(ctx context.Context, name types.NamespacedName) (*request, error) {
	// Most are settled: for those the cache is good enough.
	var seen v1alpha1.Extension
	if err := r.Client.Get(ctx, name, &seen); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if seen.Spec.Action != v1alpha1.ActionExtend || seen.Spec.By == nil || isDecisionAnnounced(&seen) {
		return nil, nil
	}
	asked := &request{Extension: &v1alpha1.Extension{}, now: r.Clock.Now().Truncate(time.Second)}
	if err := r.Live.Get(ctx, name, asked.Extension); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var err error
	if asked.project, asked.department, err = inventory.TenantForNamespace(ctx, r.Client, name.Namespace); asked.project == nil || err != nil {
		return nil, err
	}
	asked.clock = &v1alpha1.WorkloadClock{}
	err = r.Live.Get(ctx, clockKeyOf(asked.Extension), asked.clock)
	switch {
	case apierrors.IsNotFound(err), err == nil && asked.clock.Status.MissingSince != nil:
		asked.clock = nil
	case err != nil:
		return nil, fmt.Errorf("reading the clock of %s: %w", asked.workloadName(), err)
	}
	return asked, nil
}

// clockKeyOf is the name of the clock of the workload for which something is asked.
func clockKeyOf(e *v1alpha1.Extension) types.NamespacedName {
	target := e.Spec.Target
	group := schema.FromAPIVersionAndKind(target.APIVersion, "").Group
	return types.NamespacedName{Namespace: e.Namespace, Name: v1alpha1.WorkloadClockName(group, target.Kind, target.Name)}
}

// isDecisionAnnounced tells whether people were told what was decided: then nothing is left to do.
func isDecisionAnnounced(e *v1alpha1.Extension) bool {
	c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionAnnounced)
	return c != nil && c.Reason == v1alpha1.ReasonDecided
}

// evaluateSelfService grants what the department does by itself, and leaves the rest to people.
func (r *Reconciler) evaluateSelfService(ctx context.Context, asked *request) error {
	var all v1alpha1.ExtensionList
	if err := r.Live.List(ctx, &all, client.InNamespace(asked.Namespace)); err != nil {
		return fmt.Errorf("counting the extensions of namespace %s: %w", asked.Namespace, err)
	}
	answer := selfServiceLimitsOf(asked.department).evaluate(asked.Extension, all.Items, asked.clock, asked.now)
	if answer.granted {
		return r.recordDecision(ctx, asked, v1alpha1.ExtensionApproved, answer.explanation)
	}
	return r.requestDecision(ctx, asked, answer.explanation)
}

// recordDecision writes a decision that nobody had to make. It fails where somebody wrote
// on the Extension since it was read.
func (r *Reconciler) recordDecision(ctx context.Context, asked *request, decision v1alpha1.ExtensionDecision, why explanation) error {
	next := asked.DeepCopy()
	next.Status.Decision, next.Status.Message = decision, why.String()
	next.Status.DecidedBy, next.Status.DecidedAt = "", &metav1.Time{Time: asked.now}
	if err := r.updateStatus(ctx, next); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).WithName("decisions").Info("answered", "project", asked.project.Name, "workload", asked.workloadName(), "by", asked.Spec.By.String(),
		"askedBy", asked.Annotations[v1alpha1.AnnotationCreatedBy], "decision", decision, "because", why.String())
	return nil
}

func (r *Reconciler) updateStatus(ctx context.Context, next *v1alpha1.Extension) error {
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing extension %s/%s: %w", next.Namespace, next.Name, err)
	}
	return nil
}

// workloadName names the workload in words.
func (q *request) workloadName() string { return q.Spec.Target.Kind + " " + q.Spec.Target.Name }

// SetupWithManager makes the manager run r.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("extension").
		// One at a time: of two that are counted at once, both might be the last.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&v1alpha1.Extension{}).
		Watches(&v1alpha1.WorkloadClock{}, handler.EnqueueRequestsFromMapFunc(r.mapClockToExtensions), builder.WithPredicates(workloadGone)).
		Complete(conflict.WithRetry(r))
}

// workloadGone lets through the clocks of workloads that are not there any more.
var workloadGone = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isClock := e.ObjectOld.(*v1alpha1.WorkloadClock)
		after, isStill := e.ObjectNew.(*v1alpha1.WorkloadClock)
		return isClock && isStill && before.Status.MissingSince == nil && after.Status.MissingSince != nil
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// mapClockToExtensions are the Extensions for its workload of which something is still to come.
func (r *Reconciler) mapClockToExtensions(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	clock, ok := object.(*v1alpha1.WorkloadClock)
	if !ok {
		return nil
	}
	var all v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &all, client.InNamespace(clock.Namespace)); err != nil {
		log.FromContext(ctx).Error(err, "listing extensions", "namespace", clock.Namespace)
		return nil
	}
	for i := range all.Items {
		if e := &all.Items[i]; timelimitcontroller.Extends(e, clock) && !isDecisionAnnounced(e) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e)})
		}
	}
	return requests
}
