// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

func (q *request) isRenewal() bool { return q.Spec.Action == v1alpha1.ActionRenew }

// readProject reads the project from the API server. Its status has the phase, and the number of renewals without
// approval.
func (r *Reconciler) readProject(ctx context.Context, q *request) error {
	project := &v1alpha1.Project{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(q.project), project); err != nil {
		return fmt.Errorf("get project %s: %w", q.project.Name, err)
	}
	q.project = project
	return nil
}

// reconcileRenewal decides on the renewal of a project, and announces the decision. Package expiry applies it.
func (r *Reconciler) reconcileRenewal(ctx context.Context, q *request) error {
	switch applied := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionApplied); {
	case q.Status.Decision == "" && q.project.Status.Phase == "":
		return nil // the project's first phase, or the next one of a lost status, enqueues it
	case q.Status.Decision == "":
		return r.decideRenewal(ctx, q)
	case isDecisionAnnounced(q.Extension):
		return nil
	case q.Status.Decision == v1alpha1.ExtensionDenied:
		return r.reconcileAnnouncement(ctx, q, metav1.ConditionFalse, v1alpha1.ReasonDenied, "The renewal was denied")
	case q.IsPending():
		return nil // it is announced with the new end
	case applied.Status == metav1.ConditionTrue:
		return r.reconcileAnnouncement(ctx, q, metav1.ConditionTrue, "", "")
	default:
		return r.reconcileAnnouncement(ctx, q, metav1.ConditionFalse, applied.Reason, applied.Message)
	}
}

// decideRenewal approves a renewal within the department's self-service, denies one that is not possible, and otherwise
// requests a decision from people once.
func (r *Reconciler) decideRenewal(ctx context.Context, q *request) error {
	var all v1alpha1.ExtensionList
	if err := r.Live.List(ctx, &all, client.InNamespace(q.Namespace)); err != nil {
		return fmt.Errorf("list extensions in namespace %s: %w", q.Namespace, err)
	}
	decision, why := evaluateRenewal(q, all.Items)
	switch {
	case decision == v1alpha1.ExtensionDenied:
		return r.recordDecision(ctx, q, decision, why)
	case awaitsDecision(q.Extension):
		return nil
	case decision == v1alpha1.ExtensionApproved:
		return r.recordDecision(ctx, q, decision, why)
	}
	return r.reconcileRequest(ctx, q, why)
}

// evaluateRenewal returns the decision that no person needs to make, if any, and why. all are the Extensions of the
// namespace. Renewals without approval are counted in the project's status, since Extensions can be deleted. Admission
// refuses most of those that are denied here; others were requested at the same time, or before a change of the project.
func evaluateRenewal(q *request, all []v1alpha1.Extension) (v1alpha1.ExtensionDecision, explanation) {
	isOwners := q.project.HasOwner(q.Annotations[v1alpha1.AnnotationCreatedBy]) || q.project.HasOwnerAddress(q.Spec.OnBehalfOf)
	switch {
	case !q.project.Status.Phase.IsRenewable(), q.Spec.Target.Name != q.project.Name:
		return v1alpha1.ExtensionDenied, explanation{code: mail.CauseNotRenewable}
	case !isOwners:
		return v1alpha1.ExtensionDenied, explanation{code: mail.CauseRequesterNotOwner}
	}
	for i := range all {
		other := &all[i]
		comesFirst := other.Status.Decision != "" || wasRequestedBefore(other, q.Extension)
		if other.Name != q.Name && other.Spec.Action == v1alpha1.ActionRenew && other.IsPending() && comesFirst {
			return v1alpha1.ExtensionDenied, explanation{code: mail.CauseRenewalPending}
		}
	}
	used := 0
	if expiry := q.project.Status.Expiry; expiry != nil {
		used = int(expiry.SelfServiceRenewals)
	}
	switch allowed, limited := q.department.Spec.Projects.SelfServiceRenewals(); {
	case limited && allowed == 0:
		return "", explanation{code: mail.CauseNoSelfService}
	case limited && used >= allowed:
		return "", explanation{code: mail.CauseSelfServiceLimitReached, used: used, allowed: allowed}
	default:
		return v1alpha1.ExtensionApproved, explanation{code: codeSelfService, used: used + 1, allowed: allowed}
	}
}

// phaseChanged passes projects that may have been renewed.
var phaseChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Project)
		after, ok2 := e.ObjectNew.(*v1alpha1.Project)
		return ok && ok2 && before.Status.Phase != after.Status.Phase
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// mapProjectToRenewals returns the renewals of a project that are not announced.
func (r *Reconciler) mapProjectToRenewals(ctx context.Context, object client.Object) []reconcile.Request {
	project, ok := object.(*v1alpha1.Project)
	if !ok {
		return nil
	}
	return r.requestsFor(ctx, project.NamespaceName(), func(e *v1alpha1.Extension) bool { return e.Spec.Action == v1alpha1.ActionRenew })
}
