// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// mayHaveArrived begins the error of a mail that the server may have taken. It is
// sent once more, under the same Message-ID, and not a third time.
const mayHaveArrived = "may have arrived: "

// faultOf is whose fault an error is: the mail server's, for now, if nobody says.
func faultOf(err error) Fault {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure.Fault
	}
	if errors.Is(err, context.Canceled) {
		return Server // the process is asked to end
	}
	return Temporary
}

// concluded is a claimed Notice's status after its attempt. down is when the next
// mail is tried where the server takes none.
func concluded(now Moment, n *v1alpha1.Notice, err error, down time.Time, limits Limits) v1alpha1.NoticeStatus {
	s := *n.Status.DeepCopy()
	s.ClaimedBy, s.RetryAt = "", nil // claimedAt stays: it answers a wish to send again
	if err == nil {
		s.Phase, s.LastError = v1alpha1.NoticeSent, ""
		if s.SentAt == nil {
			s.SentAt = policyTime(now) // the first is the one that warned
		}
		return s
	}
	already := strings.HasPrefix(s.LastError, mayHaveArrived)
	s.LastError = oneLine(err.Error())
	fault := faultOf(err)
	if already || fault == Unknown {
		s.LastError = oneLine(mayHaveArrived + err.Error())
	}
	s.Phase = v1alpha1.NoticePending
	switch fault {
	case Recipient:
		s.Phase = lost(s)
	case Configuration:
		s.Attempts = max(0, s.Attempts-1)
	case Server:
		s.Attempts = max(0, s.Attempts-1)
		s.RetryAt = machineTime(down)
	default:
		s.RetryAt = machineTime(now.Machine.Add(limits.Retry(n.Name, int(s.Attempts))))
		if int(s.Attempts) >= limits.Attempts || fault == Unknown && already {
			s.Phase, s.RetryAt = lost(s), nil
		}
	}
	return s
}

// lost is the phase of what is not tried again: what was sent once stays sent.
func lost(s v1alpha1.NoticeStatus) v1alpha1.NoticePhase {
	if s.SentAt != nil {
		return v1alpha1.NoticeSent
	}
	return v1alpha1.NoticeFailed
}

// ended is the status of a Notice that ends without a mail of its own.
func (p *plan) ended(n *v1alpha1.Notice, d Decision) v1alpha1.NoticeStatus {
	s := *n.Status.DeepCopy()
	s.ClaimedBy, s.RetryAt = "", nil
	switch d.Action {
	case Supersede:
		s.Phase, s.LastError = v1alpha1.NoticeSuperseded, d.Because
	case GiveUp:
		s.Phase = lost(s)
		if s.LastError == "" {
			s.LastError = d.Because
		}
	case Follow:
		digest := p.byName[n.Spec.Digest].Status
		s.Sequence = int32(Sequence(n, p.all)) //nolint:gosec // as many Notices as there are
		s.Phase, s.MessageID, s.LastError, s.SentAt = digest.Phase, digest.MessageID, digest.LastError, digest.SentAt.DeepCopy()
	}
	return s
}

// longestError is how many bytes status.lastError may have.
const longestError = 1024

// oneLine is what others said, fit for a status.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError-3], "") + "..."
	}
	return text
}

func policyTime(now Moment) *metav1.Time { return &metav1.Time{Time: now.Policy.Truncate(time.Second)} }

// machineTime is rounded up: a status knows whole seconds, and what is tried too soon
// is tried in vain.
func machineTime(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.Add(time.Second - time.Nanosecond).Truncate(time.Second)}
}
