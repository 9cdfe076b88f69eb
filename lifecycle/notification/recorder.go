// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Recorder creates Notices.
type Recorder struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads a Notice that already exists.
	Live client.Reader
	// UserAddresses maps user names to addresses. It is optional.
	UserAddresses UserAddressTemplate
}

// Record creates a Notice for each recipient and returns how many are new. It is idempotent:
// existing Notices stay unchanged.
func (r *Recorder) Record(ctx context.Context, a Announcement, recipients []v1alpha1.NoticeRecipient) (recorded int, err error) {
	for _, to := range recipients {
		notice := a.newNotice(to)
		err := r.Client.Create(ctx, notice)
		switch {
		case err == nil:
			recorded++
		case !apierrors.IsAlreadyExists(err):
			return recorded, fmt.Errorf("create notice %s: %w", notice.Name, err)
		case !a.Superseded:
			continue
		default:
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(notice), notice); err != nil {
				return recorded, fmt.Errorf("get notice %s: %w", notice.Name, err)
			}
		}
		if a.Superseded && notice.Status.Phase == "" {
			notice.Status.Phase = v1alpha1.NoticeSuperseded
			if err := r.Client.Status().Update(ctx, notice); err != nil {
				return recorded, fmt.Errorf("mark notice %s as superseded: %w", notice.Name, err)
			}
		}
	}
	return recorded, nil
}

// missingRecipients returns the recipients without a Notice in the cache.
func (r *Recorder) missingRecipients(
	ctx context.Context, a Announcement, to []v1alpha1.NoticeRecipient,
) (missing []v1alpha1.NoticeRecipient, err error) {
	for _, recipient := range to {
		var n v1alpha1.Notice
		err := r.Client.Get(ctx, client.ObjectKey{Name: a.NoticeName(recipient)}, &n)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("get notice about %s: %w", a.Subject.Name, err)
		case err != nil:
			missing = append(missing, recipient)
		}
	}
	return missing, nil
}

// Announcement is one message to one or more recipients.
type Announcement struct {
	// Kind is the kind of the Notices.
	Kind v1alpha1.NoticeKind
	// Subject is the object that the message is about.
	Subject v1alpha1.ObjectReference
	// Threshold distinguishes messages of the same kind and subject, such as the warnings of
	// one deadline. Mails do not show it.
	Threshold string
	// DueAt is when the message is due, and Deadline what it warns of (zero for none), in policy
	// time.
	DueAt, Deadline time.Time
	// Lead is the time from DueAt to the deadline; zero for none.
	Lead period.Duration
	// Digest is the day of the digest that carries the message; nil for a mail of its own.
	Digest *period.Date
	// Bundle identifies the mail that carries all messages of this bundle to a recipient that are due at the same time;
	// empty for a mail of its own.
	Bundle string
	// Inputs holds the other inputs of the text.
	Inputs map[string]string
	// InputsOf returns further inputs for one recipient. It is optional.
	InputsOf func(to v1alpha1.NoticeRecipient) map[string]string
	// Superseded marks a message that a later one replaces. It is recorded and not sent.
	Superseded bool
}

// NoticeName returns the name of the Notice to a recipient.
func (a *Announcement) NoticeName(to v1alpha1.NoticeRecipient) string {
	return a.noticeName(string(to.Email))
}

// maxSubjectNameLength bounds the part of the subject's name in the Notice's name.
const maxSubjectNameLength = 60

// noticeName returns the same name for the same message. It does not depend on the deadline
// except through the threshold, since a moved deadline is no new message.
func (a *Announcement) noticeName(to string) string {
	key := strings.Join([]string{
		string(a.Kind), a.Subject.APIVersion, a.Subject.Kind, a.Subject.Namespace, a.Subject.Name, a.Threshold, strings.ToLower(to),
	}, "\x00")
	sum := sha256.Sum256([]byte(key))
	subjectName := strings.Trim(a.Subject.Name[:min(len(a.Subject.Name), maxSubjectNameLength)], "-.")
	return fmt.Sprintf("%s-%s-%s", strings.ToLower(string(a.Kind)), subjectName, hex.EncodeToString(sum[:10]))
}

// newNotice returns the Notice to a recipient.
func (a *Announcement) newNotice(to v1alpha1.NoticeRecipient) *v1alpha1.Notice {
	subject := a.Subject
	notice := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: a.noticeName(string(to.Email))},
		Spec: v1alpha1.NoticeSpec{
			Recipient: to, Kind: a.Kind, Subject: &subject, DueAt: metav1.NewTime(a.DueAt.Truncate(time.Second)), Inputs: a.Inputs,
		},
	}
	if a.InputsOf != nil {
		notice.Spec.Inputs = maps.Clone(a.Inputs)
		maps.Copy(notice.Spec.Inputs, a.InputsOf(to))
	}
	if !a.Deadline.IsZero() {
		notice.Spec.Deadline = &metav1.Time{Time: a.Deadline.Truncate(time.Second)}
	}
	if a.Digest != nil {
		notice.Spec.Digest = DigestName(to.Email, *a.Digest)
	}
	if a.Bundle != "" {
		key := strings.Join([]string{strings.ToLower(string(to.Email)), a.Bundle, notice.Spec.DueAt.UTC().Format(time.RFC3339)}, "\x00")
		sum := sha256.Sum256([]byte(key))
		notice.Spec.Digest = "bundle-" + hex.EncodeToString(sum[:10])
	}
	if !a.Lead.IsZero() {
		lead := a.Lead
		notice.Spec.Lead = &lead
	}
	return notice
}
