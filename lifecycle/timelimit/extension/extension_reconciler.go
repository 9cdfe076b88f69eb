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
	"sluice.dev/lifecycle/rendering/apply"
	timelimitcontroller "sluice.dev/lifecycle/timelimit/controller"
)

// Reconciler decides and announces Extensions of a workload's time, and renewals of projects.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads from the API server. Approved extensions are counted there.
	Live client.Reader
	// Notices records Notices.
	Notices notification.Recorder
	// Events records events on workloads.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock
}

// request is an Extension with the objects that the decision depends on.
type request struct {
	*v1alpha1.Extension
	// clock is the clock of the workload; nil if the workload is gone.
	clock      *v1alpha1.WorkloadClock
	project    *v1alpha1.Project
	department *v1alpha1.Department
	now        time.Time
}

// Reconcile implements reconcile.Reconciler for the Extension of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	q, err := r.observe(ctx, req.NamespacedName)
	if q == nil || err != nil {
		return reconcile.Result{}, err
	}
	if q.isRenewal() {
		return reconcile.Result{}, r.reconcileRenewal(ctx, q)
	}
	switch status := &q.Status; {
	case status.Decision == "" && q.clock == nil:
		err = r.recordDecision(ctx, q, v1alpha1.ExtensionDenied, explanation{code: mail.CauseWorkloadNotFound})
	case status.Decision == "" && len(q.clock.Status.Extensions) >= v1alpha1.MaxClockExtensions:
		err = r.recordDecision(ctx, q, v1alpha1.ExtensionDenied,
			explanation{code: mail.CauseExtensionLimitReached, used: len(q.clock.Status.Extensions)})
	case status.Decision == "" && !awaitsDecision(q.Extension):
		err = r.reconcileSelfService(ctx, q)
	case status.Decision == "", isDecisionAnnounced(q.Extension):
	case status.Decision == v1alpha1.ExtensionDenied:
		err = r.reconcileAnnouncement(ctx, q, metav1.ConditionFalse, v1alpha1.ReasonDenied, "The extension was denied")
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionApplied):
		err = r.reconcileAnnouncement(ctx, q, metav1.ConditionTrue, "", "")
	case q.clock == nil:
		message := explanation{code: mail.CauseWorkloadNotFound}.String()
		err = r.reconcileAnnouncement(ctx, q, metav1.ConditionFalse, v1alpha1.ReasonTargetNotFound, message)
	}
	return reconcile.Result{}, err
}

// observe reads the Extension and the objects that the decision depends on from the API
// server. It returns nil if there is nothing to decide or announce, or if the namespace has
// no project.
func (r *Reconciler) observe(ctx context.Context, name types.NamespacedName) (*request, error) {
	// Most Extensions are decided and announced. For these the cache is sufficient.
	var cached v1alpha1.Extension
	if err := r.Client.Get(ctx, name, &cached); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if cached.Spec.Action == v1alpha1.ActionDelete {
		return nil, nil // package expiry requests the deletion of projects, and applies the decision
	}
	if isDecisionAnnounced(&cached) || cached.Spec.Action == v1alpha1.ActionExtend && cached.Spec.By == nil {
		return nil, nil
	}
	q := &request{Extension: &v1alpha1.Extension{}, now: r.Clock.Now().Truncate(time.Second)}
	if err := r.Live.Get(ctx, name, q.Extension); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var err error
	if q.project, q.department, err = inventory.TenantForNamespace(ctx, r.Client, name.Namespace); q.project == nil || err != nil {
		return nil, err
	}
	if q.isRenewal() {
		return q, r.readProject(ctx, q)
	}
	q.clock = &v1alpha1.WorkloadClock{}
	err = r.Live.Get(ctx, timelimitcontroller.TargetClock(q.Extension), q.clock)
	switch {
	case apierrors.IsNotFound(err), err == nil && q.clock.Status.MissingSince != nil:
		q.clock = nil
	case err != nil:
		return nil, fmt.Errorf("get the clock of %s: %w", q.workloadName(), err)
	}
	return q, nil
}

// isDecisionAnnounced reports whether the decision was announced. Then nothing is left to do.
func isDecisionAnnounced(e *v1alpha1.Extension) bool {
	c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionAnnounced)
	return c != nil && c.Reason == v1alpha1.ReasonDecided
}

// reconcileSelfService approves the extension within the department's limits, and otherwise
// requests a decision from people.
func (r *Reconciler) reconcileSelfService(ctx context.Context, q *request) error {
	var all v1alpha1.ExtensionList
	if err := r.Live.List(ctx, &all, client.InNamespace(q.Namespace)); err != nil {
		return fmt.Errorf("list extensions in namespace %s: %w", q.Namespace, err)
	}
	granted, why := selfServiceLimitsOf(q.department).evaluate(q.Extension, all.Items, q.clock, q.now)
	if granted {
		return r.recordDecision(ctx, q, v1alpha1.ExtensionApproved, why)
	}
	return r.reconcileRequest(ctx, q, why)
}

// recordDecision writes a decision that no person made. It returns a conflict if the Extension
// changed since it was read.
func (r *Reconciler) recordDecision(ctx context.Context, q *request, decision v1alpha1.ExtensionDecision, why explanation) error {
	next := q.DeepCopy()
	next.Status.Decision, next.Status.Message = decision, why.String()
	next.Status.DecidedBy, next.Status.DecidedAt = "", &metav1.Time{Time: q.now}
	if err := r.updateStatus(ctx, next); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).WithName("decisions").Info("Decided extension", "project", q.project.Name, "workload", q.workloadName(),
		"by", q.extendBy(), "extension", q.Name, "decision", decision, "reason", why.String())
	return nil
}

func (r *Reconciler) updateStatus(ctx context.Context, next *v1alpha1.Extension) error {
	if err := r.Client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("update extension %s/%s: %w", next.Namespace, next.Name, err)
	}
	return nil
}

// workloadName returns kind and name of the workload, or of the project.
func (q *request) workloadName() string { return q.Spec.Target.Kind + " " + q.Spec.Target.Name }

// extendBy returns the requested time; empty for a renewal.
func (q *request) extendBy() string {
	if q.Spec.By == nil {
		return ""
	}
	return q.Spec.By.String()
}

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("extension").
		// One worker: two that count at the same time could both approve the last one.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&v1alpha1.Extension{}).
		Watches(&v1alpha1.WorkloadClock{}, handler.EnqueueRequestsFromMapFunc(r.mapClockToExtensions), builder.WithPredicates(workloadGone)).
		Watches(&v1alpha1.Project{}, handler.EnqueueRequestsFromMapFunc(r.mapProjectToRenewals), builder.WithPredicates(phaseChanged)).
		Complete(apply.RequeueOnConflict(r))
}

// workloadGone passes the clocks of workloads that were deleted.
var workloadGone = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.WorkloadClock)
		after, ok2 := e.ObjectNew.(*v1alpha1.WorkloadClock)
		return ok && ok2 && before.Status.MissingSince == nil && after.Status.MissingSince != nil
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// mapClockToExtensions returns the Extensions of the clock's workload that are not announced.
func (r *Reconciler) mapClockToExtensions(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	clock, ok := object.(*v1alpha1.WorkloadClock)
	if !ok {
		return nil
	}
	return r.requestsFor(ctx, clock.Namespace, func(e *v1alpha1.Extension) bool { return timelimitcontroller.Extends(e, clock) })
}

// requestsFor returns the Extensions of a namespace that are selected and not announced.
func (r *Reconciler) requestsFor(
	ctx context.Context, namespace string, selects func(*v1alpha1.Extension) bool,
) (requests []reconcile.Request) {
	var all v1alpha1.ExtensionList
	if err := r.Client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list extensions", "namespace", namespace)
		return nil
	}
	for i := range all.Items {
		if e := &all.Items[i]; selects(e) && !isDecisionAnnounced(e) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e)})
		}
	}
	return requests
}
