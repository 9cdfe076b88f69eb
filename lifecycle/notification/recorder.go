// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notices records who is to be told what. What is recorded is sent by package
// outbox: this is the one seam between what happens and mail.
//
// Enters: an [Announcement], and the people it is for. Leaves: a Notice for each
// of them. Its name is made of what it says, so that the same is recorded once,
// whoever records it and however often.
//
// It never decides who is told what, or when.
package notification

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Recorder writes Notices.
type Recorder struct {
	// Client writes to the API server.
	Client client.Client
	// Live reads from it, where a Notice is there already.
	Live client.Reader
}

// Record records an announcement for each recipient. It may be called again with
// the same: what is there already stays as it is. It returns how many were new.
func (r *Recorder) Record(ctx context.Context, a Announcement, recipients []v1alpha1.NoticeRecipient) (recorded int, err error) {
	for _, to := range recipients {
		notice := a.newNotice(to)
		err := r.Client.Create(ctx, notice)
		switch {
		case err == nil:
			recorded++
		case !apierrors.IsAlreadyExists(err):
			return recorded, fmt.Errorf("recording notice %s: %w", notice.Name, err)
		case !a.Superseded:
			continue
		default:
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(notice), notice); err != nil {
				return recorded, fmt.Errorf("reading notice %s: %w", notice.Name, err)
			}
		}
		if a.Superseded && notice.Status.Phase == "" {
			notice.Status.Phase = v1alpha1.NoticeSuperseded
			if err := r.Client.Status().Update(ctx, notice); err != nil {
				return recorded, fmt.Errorf("setting notice %s aside: %w", notice.Name, err)
			}
		}
	}
	return recorded, nil
}

// Announcement is one thing that people are told.
type Announcement struct {
	// Kind is what it is about.
	Kind v1alpha1.NoticeKind
	// Subject is the object that it speaks of.
	Subject v1alpha1.ObjectReference
	// Threshold tells it from others of the same kind and subject: which warning of
	// which end. It is not shown.
	Threshold string
	// DueAt is when it was to be said, and Deadline what it warns of (zero for none),
	// in policy time.
	DueAt, Deadline time.Time
	// Lead is how long before the deadline it was due; zero for none.
	Lead period.Duration
	// Digest is the day whose digest is to carry it, of those that [Digests] tells; nil
	// for a mail of its own.
	Digest *period.Date
	// Inputs are what its text is made of besides.
	Inputs map[string]string
	// Superseded is true where another one says all that it would have said. It is
	// recorded, and not sent.
	Superseded bool
}

// NoticeName is that of the Notice to a recipient.
func (a *Announcement) NoticeName(to v1alpha1.NoticeRecipient) string {
	return a.noticeName(string(to.Email))
}

// maxSubjectNameLength is how much of the subject's name the Notice's name repeats.
const maxSubjectNameLength = 60

// noticeName is that of the Notice to a recipient: the same for the same message. The
// deadline is left to the threshold, since one that moves is not another message.
func (a *Announcement) noticeName(to string) string {
	key := strings.Join([]string{
		string(a.Kind), a.Subject.APIVersion, a.Subject.Kind, a.Subject.Namespace, a.Subject.Name, a.Threshold, strings.ToLower(to),
	}, "\x00")
	sum := sha256.Sum256([]byte(key))
	about := strings.Trim(a.Subject.Name[:min(len(a.Subject.Name), maxSubjectNameLength)], "-.")
	return fmt.Sprintf("%s-%s-%s", strings.ToLower(string(a.Kind)), about, hex.EncodeToString(sum[:10]))
}

// newNotice is the Notice to a recipient.
func (a *Announcement) newNotice(to v1alpha1.NoticeRecipient) *v1alpha1.Notice {
	subject := a.Subject
	notice := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: a.noticeName(string(to.Email))},
		Spec: v1alpha1.NoticeSpec{
			Recipient: to, Kind: a.Kind, Subject: &subject, DueAt: metav1.NewTime(a.DueAt.Truncate(time.Second)), Inputs: a.Inputs,
		},
	}
	if !a.Deadline.IsZero() {
		notice.Spec.Deadline = &metav1.Time{Time: a.Deadline.Truncate(time.Second)}
	}
	if a.Digest != nil {
		notice.Spec.Digest = DigestName(to.Email, *a.Digest)
	}
	if !a.Lead.IsZero() {
		lead := a.Lead
		notice.Spec.Lead = &lead
	}
	return notice
}

// ProjectRecipients are the people of a project: its owners; where it has none, its
// department's contacts. Each is there once.
func ProjectRecipients(project *v1alpha1.Project, department *v1alpha1.Department) []v1alpha1.NoticeRecipient {
	var people []v1alpha1.Contact
	for _, owner := range project.Spec.Owners {
		people = append(people, owner.Contact)
	}
	if len(people) == 0 {
		return DepartmentContacts(department)
	}
	return uniqueRecipients(people, department)
}

// DepartmentContacts are the people of a department, each once.
func DepartmentContacts(department *v1alpha1.Department) []v1alpha1.NoticeRecipient {
	return uniqueRecipients(department.Spec.Contacts, department)
}

func uniqueRecipients(people []v1alpha1.Contact, department *v1alpha1.Department) (recipients []v1alpha1.NoticeRecipient) {
	seen := map[string]bool{}
	for _, contact := range people {
		address := strings.ToLower(string(contact.Email)) // nobody has two that differ in case alone
		if address == "" || seen[address] {
			continue
		}
		seen[address] = true
		recipients = append(recipients, v1alpha1.NoticeRecipient{
			Contact: contact, Language: department.Spec.Notices.Language, TimeZone: department.Spec.Notices.TimeZone,
		})
	}
	return recipients
}
