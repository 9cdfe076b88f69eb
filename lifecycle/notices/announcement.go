// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

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

// Name is that of the Notice to a recipient.
func (a *Announcement) Name(to v1alpha1.NoticeRecipient) string { return a.name(string(to.Email)) }

// nameSubject is how much of the subject's name the Notice's name repeats.
const nameSubject = 60

// name is that of the Notice to a recipient: the same for the same message. The
// deadline is left to the threshold, since one that moves is not another message.
func (a *Announcement) name(to string) string {
	key := strings.Join([]string{
		string(a.Kind), a.Subject.APIVersion, a.Subject.Kind, a.Subject.Namespace, a.Subject.Name, a.Threshold, strings.ToLower(to),
	}, "\x00")
	sum := sha256.Sum256([]byte(key))
	about := strings.Trim(a.Subject.Name[:min(len(a.Subject.Name), nameSubject)], "-.")
	return fmt.Sprintf("%s-%s-%s", strings.ToLower(string(a.Kind)), about, hex.EncodeToString(sum[:10]))
}

// notice is the Notice to a recipient.
func (a *Announcement) notice(to v1alpha1.NoticeRecipient) *v1alpha1.Notice {
	subject := a.Subject
	notice := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: a.name(string(to.Email))},
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
