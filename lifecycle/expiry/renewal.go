// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// ReasonRenewed is the reason of the condition Applied of a renewal: the project got another period of validity.
const ReasonRenewed = "Renewed"

// renewals are the Extensions that renew a project.
type renewals struct {
	// approved are those that were approved and are not applied yet, the first decided first.
	approved []*v1alpha1.Extension
	// requestedAt is the creation of the oldest one without a decision, in machine time; zero for none.
	requestedAt time.Time
}

// listExtensions returns the Extensions in the namespace of a project.
func listExtensions(ctx context.Context, reader client.Reader, project *v1alpha1.Project) ([]v1alpha1.Extension, error) {
	namespace := project.Status.Namespace
	if namespace == nil {
		return nil, nil
	}
	var list v1alpha1.ExtensionList
	if err := reader.List(ctx, &list, client.InNamespace(namespace.Name)); err != nil {
		return nil, fmt.Errorf("list extensions in namespace %s: %w", namespace.Name, err)
	}
	return list.Items, nil
}

// renewalsAmong returns the renewals of a project.
func renewalsAmong(extensions []v1alpha1.Extension, project *v1alpha1.Project) (found renewals) {
	for i := range extensions {
		e := &extensions[i]
		if !concerns(e, project, v1alpha1.ActionRenew) {
			continue
		}
		switch {
		case e.Status.Decision == "":
			if at := e.CreationTimestamp.Time; found.requestedAt.IsZero() || at.Before(found.requestedAt) {
				found.requestedAt = at
			}
		case e.IsPending():
			found.approved = append(found.approved, e)
		}
	}
	slices.SortFunc(found.approved, func(a, b *v1alpha1.Extension) int {
		return cmp.Or(timeOf(a.Status.DecidedAt).Compare(timeOf(b.Status.DecidedAt)), strings.Compare(a.Name, b.Name))
	})
	return found
}

// concerns reports whether an Extension requests an action for the project to which its namespace belongs.
func concerns(e *v1alpha1.Extension, project *v1alpha1.Project, action v1alpha1.ExtensionAction) bool {
	target := e.Spec.Target
	return e.Spec.Action == action && target.Kind == "Project" && target.Name == project.Name &&
		target.APIVersion == v1alpha1.GroupVersion.String()
}

// choose returns the renewal that is applied now, or nil.
func (f renewals) choose(project *v1alpha1.Project) *v1alpha1.Extension {
	if !project.Status.Phase.IsRenewable() {
		return nil
	}
	for _, e := range f.approved {
		if !isLastRenewal(e, &project.Status) {
			return e
		}
	}
	return nil
}

// isLastRenewal reports whether the status holds that the Extension was applied.
func isLastRenewal(e *v1alpha1.Extension, s *v1alpha1.ProjectStatus) bool {
	return s.Expiry != nil && s.Expiry.LastRenewal != nil && s.Expiry.LastRenewal.UID == e.UID
}

// setRenewal records a renewal in a status.
func setRenewal(s *v1alpha1.ProjectStatus, e *v1alpha1.Extension, now time.Time) {
	if e.Status.DecidedBy == "" {
		s.Expiry.SelfServiceRenewals++
	}
	s.Expiry.LastRenewal = &v1alpha1.ProjectRenewal{
		Extension: e.Name, UID: e.UID, At: *timestamp(now), RequestedBy: e.Annotations[v1alpha1.AnnotationCreatedBy],
		OnBehalfOf: e.Spec.OnBehalfOf, ApprovedBy: e.Status.DecidedBy,
	}
}

// markRenewals records in the approved renewals whether they were applied. The project's status comes first: a crash in
// between repeats only this.
func (r *Reconciler) markRenewals(ctx context.Context, p *pass) error {
	for _, e := range p.renewals.approved {
		next := e.DeepCopy()
		applied := metav1.Condition{
			Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAlreadyRenewed, ObservedGeneration: e.Generation,
			Message: "The project has no end that it could renew: it was renewed before, or its end was removed",
		}
		if isLastRenewal(e, &p.status) {
			applied.Status, applied.Reason, applied.Message = metav1.ConditionTrue, ReasonRenewed, "The project has no end now"
			if next.Status.NewEnd = p.status.ExpiresAt; next.Status.NewEnd != nil {
				applied.Message = "The project is valid until " + period.FormatEnd(next.Status.NewEnd.Time, p.terms.Zone)
			}
		}
		meta.SetStatusCondition(&next.Status.Conditions, applied)
		if err := r.Client.Status().Update(ctx, next); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("record the application of extension %s/%s: %w", e.Namespace, e.Name, err)
		}
	}
	return nil
}
