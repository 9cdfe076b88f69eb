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
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// mayHaveArrivedPrefix begins the error of a mail that the server may have taken. It is
// sent once more, under the same Message-ID, and not a third time.
const mayHaveArrivedPrefix = "may have arrived: "

// failureKindOf is whose fault an error is: the mail server's, for now, if nobody says.
func failureKindOf(err error) FailureKind {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure.Kind
	}
	if errors.Is(err, context.Canceled) {
		return ServerFailure // the process is asked to end
	}
	return TemporaryFailure
}

// statusAfterAttempt is a claimed Notice's status after its attempt. down is when the next
// mail is tried where the server takes none.
func statusAfterAttempt(now Instant, n *v1alpha1.Notice, err error, down time.Time, limits Limits) v1alpha1.NoticeStatus {
	s := *n.Status.DeepCopy()
	s.ClaimedBy, s.RetryAt = "", nil // claimedAt stays: it answers a wish to send again
	if err == nil {
		s.Phase, s.LastError = v1alpha1.NoticeSent, ""
		if s.SentAt == nil {
			s.SentAt = toPolicyTime(now) // the first is the one that warned
		}
		return s
	}
	already := strings.HasPrefix(s.LastError, mayHaveArrivedPrefix)
	s.LastError = singleLine(err.Error())
	fault := failureKindOf(err)
	if already || fault == UnknownOutcome {
		s.LastError = singleLine(mayHaveArrivedPrefix + err.Error())
	}
	s.Phase = v1alpha1.NoticePending
	switch fault {
	case RecipientFailure:
		s.Phase = finalPhase(s)
	case ConfigurationFailure:
		s.Attempts = max(0, s.Attempts-1)
	case ServerFailure:
		s.Attempts = max(0, s.Attempts-1)
		s.RetryAt = toMachineTime(down)
	default:
		s.RetryAt = toMachineTime(now.Machine.Add(limits.RetryDelay(n.Name, int(s.Attempts))))
		if int(s.Attempts) >= limits.MaxAttempts || fault == UnknownOutcome && already {
			s.Phase, s.RetryAt = finalPhase(s), nil
		}
	}
	return s
}

// finalPhase is the phase of what is not tried again: what was sent once stays sent.
func finalPhase(s v1alpha1.NoticeStatus) v1alpha1.NoticePhase {
	if s.SentAt != nil {
		return v1alpha1.NoticeSent
	}
	return v1alpha1.NoticeFailed
}

// statusWithoutSending is the status of a Notice that ends without a mail of its own.
func (p *plan) statusWithoutSending(n *v1alpha1.Notice, d Decision) v1alpha1.NoticeStatus {
	s := *n.Status.DeepCopy()
	s.ClaimedBy, s.RetryAt = "", nil
	switch d.Action {
	case ActionSupersede:
		s.Phase, s.LastError = v1alpha1.NoticeSuperseded, d.Reason
	case ActionGiveUp:
		s.Phase = finalPhase(s)
		if s.LastError == "" {
			s.LastError = d.Reason
		}
	case ActionFollowDigest:
		digest := p.byName[n.Spec.Digest].Status
		s.Sequence = int32(Sequence(n, p.all)) //nolint:gosec // as many Notices as there are
		s.Phase, s.MessageID, s.LastError, s.SentAt = digest.Phase, digest.MessageID, digest.LastError, digest.SentAt.DeepCopy()
	}
	return s
}

// maxErrorBytes is how many bytes status.lastError may have.
const maxErrorBytes = 1024

// singleLine is what others said, fit for a status.
func singleLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxErrorBytes {
		text = strings.ToValidUTF8(text[:maxErrorBytes-3], "") + "..."
	}
	return text
}

func toPolicyTime(now Instant) *metav1.Time {
	return &metav1.Time{Time: now.Policy.Truncate(time.Second)}
}

// toMachineTime is rounded up: a status knows whole seconds, and what is tried too soon
// is tried in vain.
func toMachineTime(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.Add(time.Second - time.Nanosecond).Truncate(time.Second)}
}

// How long a mail waits at which the server said that it takes nothing now, after it
// had heard whom the mail is for; twice that each time. All others wait for the server
// alone, so that one mail that brings it about holds them up ever more seldom.
const (
	firstLateRejectionRetry = time.Minute
	maxLateRejectionRetry   = 30 * time.Minute
)

// lateRejectionRetryAt is when n is tried again that failed, where down is when the server is.
func (s *Sender) lateRejectionRetryAt(now Instant, n *v1alpha1.Notice, failed error, down time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failure *Failure
	if !errors.As(failed, &failure) || failure.Kind != ServerFailure || !failure.AfterRecipient {
		delete(s.lateRejections, n.UID)
		return down
	}
	if s.lateRejections == nil {
		s.lateRejections = map[types.UID]int{}
	}
	s.lateRejections[n.UID]++
	l := Limits{FirstRetry: firstLateRejectionRetry, MaxRetry: maxLateRejectionRetry}
	if at := now.Machine.Add(l.RetryDelay(n.Name, s.lateRejections[n.UID])); at.After(down) {
		return at
	}
	return down
}
