// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
)

// noticesByProject is the index of the cache that holds the Notices about projects by the project's UID.
const noticesByProject = "expiry.project"

// projectUIDOf returns the UID of the project that a Notice is about, or "".
func projectUIDOf(n *v1alpha1.Notice) string {
	if n.Spec.Subject == nil || n.Spec.Subject.Kind != "Project" {
		return ""
	}
	return string(n.Spec.Subject.UID)
}

// noticeSet holds the recorded Notices of a project by name. They belong to the cache.
type noticeSet map[string]*v1alpha1.Notice

func (r *Reconciler) listNotices(ctx context.Context, project *v1alpha1.Project) (noticeSet, error) {
	var list v1alpha1.NoticeList
	err := r.Client.List(ctx, &list, client.MatchingFields{noticesByProject: string(project.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list notices of project %s: %w", project.Name, err)
	}
	set := make(noticeSet, len(list.Items))
	for i := range list.Items {
		set[list.Items[i].Name] = &list.Items[i]
	}
	return set, nil
}

// deliveryTo returns what became of an announcement to recipients.
func (s noticeSet) deliveryTo(a notification.Announcement, to []v1alpha1.NoticeRecipient) Delivery {
	d := Delivery{Failed: true}
	for _, recipient := range to {
		n := s[a.NoticeName(recipient)]
		if n == nil {
			d.Missing = true
		}
		if n == nil || n.Status.Phase != v1alpha1.NoticeFailed {
			d.Failed = false
		}
		if n != nil && n.Status.SentAt != nil && (d.SentAt.IsZero() || n.Status.SentAt.Time.Before(d.SentAt)) {
			d.SentAt = n.Status.SentAt.UTC()
		}
	}
	return d
}

// sentNames returns the names of the warnings that were sent, up to a few: the evidence of a decision.
func (s noticeSet) sentNames(kind v1alpha1.NoticeKind) (names []string) {
	for name, n := range s {
		if n.Spec.Kind == kind && n.Status.SentAt != nil && len(names) < maxEvidence {
			names = append(names, name)
		}
	}
	return names
}

// hasSentWarning reports whether a warning was sent.
func (s noticeSet) hasSentWarning() bool {
	for _, n := range s {
		if isWarning(n) && n.Status.SentAt != nil {
			return true
		}
	}
	return false
}

// maxEvidence bounds the names in a line of the decision log.
const maxEvidence = 8

// isWarning reports whether a Notice is a warning of a step.
func isWarning(n *v1alpha1.Notice) bool {
	switch n.Spec.Kind {
	case v1alpha1.NoticeProjectExpiring, v1alpha1.NoticeProjectConfirm, v1alpha1.NoticeProjectSuspending, v1alpha1.NoticeProjectDeletion:
		return n.Spec.Lead != nil
	default:
		return false
	}
}

// isUnsentWarning reports whether a Notice is a warning that would still be sent.
func isUnsentWarning(n *v1alpha1.Notice) bool {
	return isWarning(n) && (n.Status.Phase == "" || n.Status.Phase == v1alpha1.NoticePending)
}

// warningKind returns the kind of the warnings of a step.
func (p *pass) warningKind(step v1alpha1.ProjectPhase) v1alpha1.NoticeKind {
	switch {
	case step == v1alpha1.ProjectSuspended:
		return v1alpha1.NoticeProjectSuspending
	case step == v1alpha1.ProjectPendingDeletion && p.terms.AtExpiry == v1alpha1.ExpiryConfirm:
		return v1alpha1.NoticeProjectConfirm
	case step == v1alpha1.ProjectPendingDeletion, step == v1alpha1.ProjectDeleting:
		return v1alpha1.NoticeProjectDeletion
	default:
		return v1alpha1.NoticeProjectExpiring
	}
}

// newAnnouncement returns an announcement about the project. Its threshold has the project's UID and period, so that a
// project that is created again under its name shares no Notice with the former one.
func (p *pass) newAnnouncement(kind v1alpha1.NoticeKind, periods int32, distinction ...string) notification.Announcement {
	project := p.project
	a := notification.Announcement{
		Kind: kind, DueAt: p.now,
		Threshold: strings.Join(append([]string{string(project.UID), strconv.Itoa(int(periods))}, distinction...), "/"),
		Subject:   v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: project.Name, UID: project.UID},
		Inputs:    map[string]string{mail.InputProject: project.Name, mail.InputDepartment: project.Spec.Department},
		InputsOf:  p.recipientInputs,
	}
	if namespace := project.NamespaceName(); namespace != project.Name {
		a.Inputs[mail.InputNamespace] = namespace
	}
	return a
}

// recipientInputs returns to whom an owner writes who cannot run a command; and for a contact of the department, who the
// owners are.
func (p *pass) recipientInputs(to v1alpha1.NoticeRecipient) map[string]string {
	isOwner := func(owner v1alpha1.NoticeRecipient) bool {
		return strings.EqualFold(string(owner.Email), string(to.Email))
	}
	if !slices.ContainsFunc(p.owners, isOwner) {
		var owners []v1alpha1.Contact
		for _, owner := range p.owners {
			owners = append(owners, owner.Contact)
		}
		return map[string]string{mail.InputOwners: mail.FormatContacts(owners)}
	}
	if len(p.department.Spec.Contacts) == 0 {
		return nil
	}
	return map[string]string{mail.InputContacts: mail.FormatContacts(p.department.Spec.Contacts)}
}

// warningAnnouncement returns the announcement of a warning, as far as the names of its Notices follow from it.
func (p *pass) warningAnnouncement(key WarningKey) notification.Announcement {
	return p.newAnnouncement(p.warningKind(key.Step), key.Periods, string(key.Step), strconv.FormatInt(key.Deadline.Unix(), 10), key.Lead.String())
}

// announcedWarning is a warning with those to whom it goes.
type announcedWarning struct {
	notification.Announcement
	to []v1alpha1.NoticeRecipient
}

// dueWarnings returns the warnings that are due, and the names of the Notices that may be sent.
func (p *pass) dueWarnings() (due []announcedWarning, valid map[string]bool) {
	valid = map[string]bool{}
	for _, w := range p.decision.Warnings {
		a := announcedWarning{p.warningAnnouncement(w.WarningKey), p.owners}
		p.describeWarning(&a.Announcement, &w)
		if w.ToContacts {
			a.to = notification.ProjectAndDepartmentRecipients(p.project, p.department)
		}
		due = append(due, a)
		for _, to := range a.to {
			if !w.Superseded {
				valid[a.NoticeName(to)] = true
			}
		}
	}
	return due, valid
}

// missingWarnings returns the warnings that are not recorded for all their recipients.
func (p *pass) missingWarnings() (missing []announcedWarning) {
	due, _ := p.dueWarnings()
	for _, a := range due {
		if p.notices.deliveryTo(a.Announcement, a.to).Missing {
			missing = append(missing, a)
		}
	}
	return missing
}

// outdatedWarnings returns the unsent warnings that are not to be sent any more: of another deadline, to a person who is no
// recipient any more, or of a deadline that cannot be kept.
func (p *pass) outdatedWarnings() (outdated []*v1alpha1.Notice) {
	if p.department == nil && p.project.DeletionTimestamp.IsZero() {
		return nil // nothing is known about a project whose department is missing
	}
	_, valid := p.dueWarnings()
	for name, n := range p.notices {
		if isUnsentWarning(n) && !valid[name] {
			outdated = append(outdated, n)
		}
	}
	return outdated
}

// withdrawWarnings marks warnings as superseded unless they were sent in the meantime.
func (r *Reconciler) withdrawWarnings(ctx context.Context, outdated []*v1alpha1.Notice) error {
	for _, cached := range outdated {
		n := &v1alpha1.Notice{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), n); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return fmt.Errorf("get notice %s: %w", cached.Name, err)
		}
		if !isUnsentWarning(n) {
			continue
		}
		n.Status.Phase, n.Status.LastError, n.Status.RetryAt = v1alpha1.NoticeSuperseded, "the deadline of the project has changed", nil
		if err := r.Client.Status().Update(ctx, n); err != nil {
			return fmt.Errorf("mark notice %s as superseded: %w", n.Name, err)
		}
	}
	return nil
}
