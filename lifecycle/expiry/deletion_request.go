// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// The reasons of the condition Applied of a request of a project's deletion.
const (
	// ReasonDeletionApproved means that the deletion begins seven days after the owners were informed.
	ReasonDeletionApproved = "DeletionApproved"
	// ReasonWithdrawn means that the project was renewed or put on hold before its deletion was approved.
	ReasonWithdrawn = "Withdrawn"
)

// deletionRequests are the Extensions that request the deletion of a project.
type deletionRequests struct {
	// current is the one that the project's status names, whose decision is not applied yet; nil if it does not exist.
	current *v1alpha1.Extension
	all     []*v1alpha1.Extension
}

// deletionRequestsAmong returns the requests of a project's deletion.
func deletionRequestsAmong(extensions []v1alpha1.Extension, project *v1alpha1.Project) (found deletionRequests) {
	for i := range extensions {
		if e := &extensions[i]; concerns(e, project, v1alpha1.ActionDelete) {
			found.all = append(found.all, e)
			if e.Name == project.Status.DeletionRequest && !isApplied(e) {
				found.current = e
			}
		}
	}
	return found
}

// isApplied reports whether lifecycle recorded what became of a request's decision, which then counts no more.
func isApplied(e *v1alpha1.Extension) bool {
	return meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionApplied) != nil
}

// observe adds the decision on the current request to an observation. Only a person approves.
func (f deletionRequests) observe(o *Observation, terms *Terms) {
	if f.current == nil {
		return
	}
	switch status := &f.current.Status; {
	case status.Decision == v1alpha1.ExtensionApproved && status.DecidedBy != "":
		o.Approval = Approval{Extension: f.current.Name, UID: f.current.UID, By: status.DecidedBy, Message: status.Message}
	case status.Decision == v1alpha1.ExtensionDenied:
		if o.Dismissed = true; status.Until != nil {
			o.DismissedUntil = status.Until.End(terms.Zone)
		}
	}
}

// deletionRequestName returns the name of the Extension that requests the deletion of a project. Each time that the project
// comes to the phase PendingDeletion it is another one, so that no former decision counts.
func deletionRequestName(since *metav1.Time) string { return fmt.Sprintf("deletion-%d", since.Unix()) }

// isRequestMissing reports whether the request of the deletion does not exist and is needed.
func (p *pass) isRequestMissing() bool {
	name := p.status.DeletionRequest
	return name != "" && !p.decision.Record.Approval.isGiven() && p.project.Status.Namespace != nil && p.project.DeletionTimestamp.IsZero() &&
		p.department != nil && (p.requests.current == nil || p.requests.current.Name != name)
}

// outdatedRequests returns the requests that lead to nothing any more and are removed, and those with a decision whose
// condition Applied is missing. After a step of policy time back, a former request can have the name of the next one.
func (p *pass) outdatedRequests() (obsolete, decided []*v1alpha1.Extension) {
	for _, e := range p.requests.all {
		isNamed := e.Name == p.status.DeletionRequest
		switch {
		case e.Status.Decision == "" && !isNamed, isApplied(e) && isNamed && !p.decision.Record.Approval.isGiven():
			obsolete = append(obsolete, e)
		case e.Status.Decision != "" && !isApplied(e):
			decided = append(decided, e)
		}
	}
	return obsolete, decided
}

// reconcileDeletionRequest creates the request of the deletion, deletes those that lead to nothing any more, and records in
// those with a decision whether it was applied. The project's status comes first: a crash in between repeats only this.
func (r *Reconciler) reconcileDeletionRequest(ctx context.Context, p *pass) error {
	obsolete, decided := p.outdatedRequests()
	for _, e := range obsolete {
		if err := r.Client.Delete(ctx, e, client.Preconditions{UID: &e.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete extension %s/%s: %w", e.Namespace, e.Name, err)
		}
	}
	for _, e := range decided {
		if err := r.markDeletionRequest(ctx, p, e); err != nil {
			return err
		}
	}
	if !p.isRequestMissing() {
		return nil
	}
	request := p.newDeletionRequest()
	err := r.Client.Create(ctx, request)
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		p.isNamespaceMissing = true // until it is created again
		return nil
	}
	if err != nil {
		return fmt.Errorf("create extension %s/%s: %w", request.Namespace, request.Name, err)
	}
	return nil
}

// newDeletionRequest returns the request of the project's deletion.
func (p *pass) newDeletionRequest() *v1alpha1.Extension {
	end := period.FormatEnd(p.decision.Record.End, p.terms.Zone)
	reason := "the project expired at " + end + " and was not renewed"
	if !p.decision.Record.Closed {
		reason = "no owner confirmed that the project is still needed after " + end
	}
	return &v1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.project.Status.Namespace.Name, Name: p.status.DeletionRequest},
		Spec: v1alpha1.ExtensionSpec{
			Target: v1alpha1.ExtensionTarget{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: p.project.Name},
			Action: v1alpha1.ActionDelete, Reason: reason,
		},
	}
}

// markDeletionRequest records in a request with a decision whether that was applied.
func (r *Reconciler) markDeletionRequest(ctx context.Context, p *pass, e *v1alpha1.Extension) error {
	applied := metav1.Condition{
		Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, ObservedGeneration: e.Generation,
		Reason: v1alpha1.ReasonDenied, Message: "The deletion was dismissed",
	}
	switch {
	case e.Status.Decision == v1alpha1.ExtensionDenied:
	case p.decision.Record.Approval.UID == e.UID:
		applied.Status, applied.Reason = metav1.ConditionTrue, ReasonDeletionApproved
		applied.Message = "The deletion begins at least seven days after the owners were informed; a renewal until then undoes it"
	default:
		applied.Reason, applied.Message = ReasonWithdrawn, "The project was renewed or put on hold before, or its deletion was requested again"
	}
	next := e.DeepCopy()
	meta.SetStatusCondition(&next.Status.Conditions, applied)
	if err := r.Client.Status().Update(ctx, next); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("record the result of extension %s/%s: %w", e.Namespace, e.Name, err)
	}
	return nil
}

// isDeletionDue reports whether the approved deletion of the project is to begin. Its status has the phase Deleting, and the
// finalizer does the rest.
func (p *pass) isDeletionDue() bool {
	return p.status.Phase == v1alpha1.ProjectDeleting && p.decision.Record.Approval.isGiven() && p.project.DeletionTimestamp.IsZero()
}

// reconcileDeletion deletes the project.
func (r *Reconciler) reconcileDeletion(ctx context.Context, p *pass) error {
	if !p.isDeletionDue() {
		return nil
	}
	project := p.project
	if err := r.Client.Delete(ctx, project, client.Preconditions{UID: &project.UID}); client.IgnoreNotFound(err) != nil {
		r.Events.Eventf(project, nil, corev1.EventTypeWarning, "ProjectDeletionFailed", "Delete",
			"the deletion was approved by %s, and the API server refuses it; it is tried again: %s", p.decision.Record.Approval.By,
			v1alpha1.TruncateText(err.Error(), maxErrorInEvent))
		return fmt.Errorf("delete project %s: %w", project.Name, err)
	}
	return nil
}

// maxErrorInEvent bounds the text of an error in an event, whose note has at most 1024 bytes.
const maxErrorInEvent = 500
