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

// mayHaveArrivedPrefix starts the error of a mail that the server may have accepted. It is sent
// once more, under the same Message-ID, and not a third time.
const mayHaveArrivedPrefix = "may have arrived: "

// failureOf returns the Failure in an error; nil for none.
func failureOf(err error) *Failure {
	var failure *Failure
	errors.As(err, &failure)
	return failure
}

// failureKindOf returns the kind of an error; TemporaryFailure if unknown.
func failureKindOf(err error) FailureKind {
	if failure := failureOf(err); failure != nil {
		return failure.Kind
	}
	if errors.Is(err, context.Canceled) {
		return ServerFailure // the process is shutting down
	}
	return TemporaryFailure
}

// statusAfterAttempt returns the status of a claimed Notice after its attempt. down is when the
// server is tried again.
func statusAfterAttempt(now Instant, n *v1alpha1.Notice, err error, down time.Time, limits Limits) v1alpha1.NoticeStatus {
	s := *n.Status.DeepCopy()
	s.ClaimedBy, s.RetryAt = "", nil // claimedAt stays: resendRequestedAt compares it
	if err == nil {
		s.Phase, s.LastError = v1alpha1.NoticeSent, ""
		if s.SentAt == nil {
			s.SentAt = toPolicyTime(now) // the first sending is the warning
		}
		return s
	}
	mayHaveArrived := strings.HasPrefix(s.LastError, mayHaveArrivedPrefix)
	s.LastError = singleLine(err.Error())
	kind := failureKindOf(err)
	if mayHaveArrived || kind == UnknownOutcome {
		s.LastError = singleLine(mayHaveArrivedPrefix + err.Error())
	}
	s.Phase = v1alpha1.NoticePending
	switch kind {
	case RecipientFailure:
		s.Phase = finalPhase(s)
	case ConfigurationFailure:
		s.Attempts = max(0, s.Attempts-1)
	case ServerFailure:
		s.Attempts = max(0, s.Attempts-1)
		s.RetryAt = toMachineTime(down)
	default:
		s.RetryAt = toMachineTime(now.Machine.Add(limits.RetryDelay(n.Name, int(s.Attempts))))
		if int(s.Attempts) >= limits.MaxAttempts || kind == UnknownOutcome && mayHaveArrived {
			s.Phase, s.RetryAt = finalPhase(s), nil
		}
	}
	return s
}

// finalPhase returns the phase of a Notice that is not retried; a Notice that was sent once stays Sent.
func finalPhase(s v1alpha1.NoticeStatus) v1alpha1.NoticePhase {
	if s.SentAt != nil {
		return v1alpha1.NoticeSent
	}
	return v1alpha1.NoticeFailed
}

// statusWithoutSending returns the status of a Notice that finishes without a mail of its own.
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
		s.Sequence = int32(Sequence(n, p.all)) //nolint:gosec // bounded by the number of Notices
		s.Phase, s.MessageID, s.LastError, s.SentAt = digest.Phase, digest.MessageID, digest.LastError, digest.SentAt.DeepCopy()
	}
	return s
}

// maxErrorBytes bounds status.lastError.
const maxErrorBytes = 1024

// singleLine sanitizes untrusted text for a status.
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

// toMachineTime rounds up to whole seconds, the resolution of a status, so that a retry is not too
// early.
func toMachineTime(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.Add(time.Second - time.Nanosecond).Truncate(time.Second)}
}

// Delays of a mail after a server failure that followed its recipient; they double each time. Other
// mails wait for the server only, so one mail that causes the failure delays them less and less.
const (
	firstLateRejectionRetry = time.Minute
	maxLateRejectionRetry   = 30 * time.Minute
)

// lateRejections counts the server failures of a Notice after its recipient was sent.
type lateRejections struct {
	count int
	// lastAt is the time of the last one, in machine time.
	lastAt time.Time
	// isCause reports whether the server accepted another mail after one of them: the Notice is
	// the cause.
	isCause bool
}

// attributeFailure returns the minimum delay of n after a failure of the server, and the error of the
// attempt. A server failure that n causes is a temporary failure of n alone: its attempts count, and
// other mails do not wait.
func (s *Sender) attributeFailure(now Instant, n *v1alpha1.Notice, sendErr error) (retryAfter time.Duration, attributed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failure := failureOf(sendErr)
	if failure == nil || failure.Kind != ServerFailure || !failure.AfterRecipient {
		delete(s.lateRejections, n.UID)
		return 0, sendErr
	}
	if s.lateRejections == nil {
		s.lateRejections = map[types.UID]lateRejections{}
	}
	r := s.lateRejections[n.UID]
	r.isCause = r.isCause || r.count > 0 && s.acceptedAt.After(r.lastAt)
	r.count, r.lastAt = r.count+1, now.Machine
	s.lateRejections[n.UID] = r
	if r.isCause {
		own := *failure
		own.Kind = TemporaryFailure
		return 0, &own
	}
	return Limits{FirstRetry: firstLateRejectionRetry, MaxRetry: maxLateRejectionRetry}.RetryDelay(n.Name, r.count), sendErr
}
