// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// recordEvent records an event.
type recordEvent func(kind, reason, action, format string, args ...any)

// recordChange records an event, a line of the decision log and metrics of a change that was written.
func (r *Reconciler) recordChange(ctx context.Context, p *pass) {
	before, after := &p.record, &p.decision.Record
	log := ctrl.LoggerFrom(ctx).WithName("decisions")
	fields := []any{
		"project", p.project.Name, "department", p.project.Spec.Department, "phase", after.Phase, "formerPhase", before.Phase,
		"period", after.Periods, "next", after.Step, "deadline", after.Deadline, "formerDeadline", before.Deadline,
	}
	event := func(kind, reason, action, format string, args ...any) {
		r.Events.Eventf(p.project, nil, kind, reason, action, format, args...)
	}
	evidence := p.notices.sentNames(p.warningKind(before.Step))
	switch {
	case p.renewal != nil:
		renewalsTotal.WithLabelValues(p.project.Spec.Department, approvalOf(p.renewal)).Inc()
		log.Info("Renewed project", append(fields, "extension", p.renewal.Name,
			"requestedBy", p.renewal.Annotations[v1alpha1.AnnotationCreatedBy], "onBehalfOf", p.renewal.Spec.OnBehalfOf,
			"approvedBy", p.renewal.Status.DecidedBy)...)
		event(corev1.EventTypeNormal, "ProjectRenewed", "Renew", "the project was renewed: %s", p.describeEnd())
	case before.Phase != after.Phase:
		stepsTotal.WithLabelValues(p.project.Spec.Department, string(after.Phase)).Inc()
		log.Info("Changed phase of project", append(fields, "firstWarned", before.FirstWarned, "lastWarned", before.LastWarned,
			"notices", evidence, "renewalRequestedAt", p.observed.RequestedAt)...)
		p.recordStep(event)
	case after.Approval.isGiven() && !before.Approval.isGiven():
		log.Info("Approved deletion of project", append(fields, "extension", after.Approval.Extension,
			"approvedBy", after.Approval.By, "message", after.Approval.Message, "notices", p.notices.sentNames(v1alpha1.NoticeProjectDeletion))...)
		event(corev1.EventTypeWarning, "ProjectDeletionApproved", "Delete",
			"the deletion was approved: %s; undo with: sluice renew project/%s", p.describeEnd(), p.project.Name)
	case !before.Deadline.IsZero() && !before.Deadline.Equal(after.Deadline):
		log.Info("Moved deadline of project", append(fields, "held", p.observed.Held, "notices", evidence)...)
		event(corev1.EventTypeNormal, "ProjectExpiryMoved", "Expire", "the next step of the project was moved: %s", p.describeEnd())
	}
	if p.department != nil {
		r.recordDeletion(ctx, p)
	}
}

// recordStep records the event of a new phase.
func (p *pass) recordStep(event recordEvent) {
	name := p.project.Name
	switch p.decision.Record.Phase {
	case v1alpha1.ProjectExpiring:
		event(corev1.EventTypeNormal, "ProjectExpiring", "Expire", "the owners are warned: %s; renew with: sluice renew project/%s",
			p.describeEnd(), name)
	case v1alpha1.ProjectExpired:
		event(corev1.EventTypeWarning, "ProjectExpired", "Expire",
			"the project expired after all its warnings and accepts no new pods with GPUs; %s; renew with: sluice renew project/%s",
			p.describeEnd(), name)
	case v1alpha1.ProjectSuspended:
		if p.record.Phase == v1alpha1.ProjectPendingDeletion {
			event(corev1.EventTypeNormal, "ProjectDeletionDismissed", "Delete", "the deletion was dismissed and the project stays suspended: %s",
				p.describeEnd())
			return
		}
		event(corev1.EventTypeWarning, "ProjectSuspended", "Suspend",
			"the project was not renewed, and its workloads with GPUs are stopped; %s; renew with: sluice renew project/%s",
			p.describeEnd(), name)
	case v1alpha1.ProjectPendingDeletion:
		if p.decision.Record.Closed {
			event(corev1.EventTypeWarning, "ProjectDeletionRequested", "Delete",
				"the department is asked to approve the deletion; renew with: sluice renew project/%s", name)
			return
		}
		event(corev1.EventTypeWarning, "ProjectUnconfirmed", "Expire",
			"no owner confirmed that the project is still needed; it stays usable until its department decides; "+
				"confirm with: sluice renew project/%s", name)
	case v1alpha1.ProjectDeleting:
		event(corev1.EventTypeWarning, "ProjectDeletionBegun", "Delete", "the project is deleted")
	case v1alpha1.ProjectActive:
		if p.record.Phase != "" {
			event(corev1.EventTypeNormal, "ProjectActive", "Expire", "the project has another end: %s", p.describeEnd())
		}
	}
}

// recordDeletion records what happens to a project's deletion on its department, which outlives the project, and counts the
// decisions.
func (r *Reconciler) recordDeletion(ctx context.Context, p *pass) {
	before, after := &p.record, &p.decision.Record
	event := func(kind, reason, format string, args ...any) {
		r.Events.Eventf(p.department, p.project, kind, reason, "Delete", "project "+p.project.Name+": "+format, args...)
	}
	count := func(decision string) {
		deletionDecisionsTotal.WithLabelValues(p.project.Spec.Department, decision).Inc()
	}
	if after.Approval.isGiven() && !before.Approval.isGiven() {
		count("Approved")
		event(corev1.EventTypeNormal, "ProjectDeletionApproved", "%s approved the deletion: %s; %s", after.Approval.By, after.Approval.Message,
			p.describeEnd())
	}
	if before.Phase == after.Phase {
		return
	}
	switch {
	case after.Phase == v1alpha1.ProjectPendingDeletion:
		event(corev1.EventTypeWarning, "ProjectDeletionRequested",
			"its deletion needs a decision; sluice approve project/%[1]s --delete, or sluice dismiss project/%[1]s", p.project.Name)
	case after.Phase == v1alpha1.ProjectDeleting && after.Approval.isGiven():
		event(corev1.EventTypeNormal, "ProjectDeletionBegun", "its deletion begins; %s approved it: %s", after.Approval.By, after.Approval.Message)
	case p.isDeletionDismissed():
		by, message, until := p.dismissal()
		count("Dismissed")
		ctrl.LoggerFrom(ctx).WithName("decisions").Info("Dismissed deletion of project", "project", p.project.Name,
			"department", p.project.Spec.Department, "by", by, "message", message, "until", until, "held", p.observed.Held,
			"notices", p.notices.sentNames(v1alpha1.NoticeProjectDeletion))
		event(corev1.EventTypeNormal, "ProjectDeletionDismissed", "%s dismissed the deletion: %s; %s", by, message, p.describeEnd())
	case before.Approval.isGiven():
		event(corev1.EventTypeNormal, "ProjectDeletionWithdrawn", "its approved deletion was withdrawn, since the project is %s: %s",
			after.Phase, p.describeEnd())
	}
}

// describeEnd describes the next step of the project.
func (p *pass) describeEnd() string {
	next := p.status.Next
	if next == nil {
		return "no further step is scheduled"
	}
	return fmt.Sprintf("it becomes %s at %s", next.Phase, period.FormatEnd(next.At.Time, p.terms.Zone))
}
