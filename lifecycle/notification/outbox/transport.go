// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"sluice.dev/api/v1alpha1"
)

// ComposeRequest is the input of a mail.
type ComposeRequest struct {
	// Notice is the message, and Carried holds the Notices in it if it is a digest.
	Notice  *v1alpha1.Notice
	Carried []*v1alpha1.Notice
	// withdrawn is the number of Notices of the digest that were superseded after it was recorded.
	withdrawn int
	// Now is when the mail is sent, in policy time.
	Now time.Time
	// Sequence and Canceled describe its appointment: see [Sequence] and [IsCancellation].
	// Sequences holds those of the carried Notices by name.
	Sequence  int
	Sequences map[string]int
	Canceled  bool
}

// Message is a complete mail.
type Message struct {
	// MessageID is its Message-ID, with angle brackets.
	MessageID string
	// Bytes holds the message for SMTP.
	Bytes []byte
}

// Composer renders mails, before the mail server is contacted. A Notice must get the same Message-ID at
// each attempt.
type Composer interface {
	Compose(ctx context.Context, request ComposeRequest) (*Message, error)
}

// Transport submits a mail to the mail server. It returns nil only if the server has accepted the
// mail, and a [Failure] if it knows the kind of failure. It returns when ctx ends, and is called
// concurrently.
type Transport interface {
	Send(ctx context.Context, to string, mail []byte) error
}

// FailureKind classifies why a mail was not sent.
type FailureKind string

// The kinds.
const (
	// TemporaryFailure: the server does not accept this mail now.
	TemporaryFailure FailureKind = "Temporary"
	// ServerFailure: the server is unreachable or accepts no mail now.
	ServerFailure FailureKind = "Server"
	// RecipientFailure: the server will never accept this mail for this address.
	RecipientFailure FailureKind = "Recipient"
	// DeniedFailure: the server denies this recipient, because of the address or of the
	// configuration.
	DeniedFailure FailureKind = "Denied"
	// ConfigurationFailure: the mail configuration is wrong; no mail can be sent until it changes.
	ConfigurationFailure FailureKind = "Configuration"
	// UnknownOutcome: the complete mail was sent without a reply. It may have arrived.
	UnknownOutcome FailureKind = "Unknown"
)

// Failure is an error of a [Transport] or a [Composer].
type Failure struct {
	// Kind classifies the failure.
	Kind FailureKind
	// AfterRecipient reports whether the recipient had been sent. This mail may then cause the
	// failure of the server, so others are tried first.
	AfterRecipient bool
	// Words identifies the reply of a DeniedFailure: it is the same for all recipients that the
	// server denies for the same reason.
	Words string
	// Summary is the failure without addresses, for logs; empty to log Err.
	Summary string
	// Err is the cause, without secrets. It may contain the recipient's address.
	Err error
}

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Limits bounds the attempts of a Notice, in machine time.
type Limits struct {
	// MaxAttempts bounds the attempts. Failures of the server or of the configuration do not
	// count, unless the server accepts other mail meanwhile.
	MaxAttempts int
	// FirstRetry is the approximate delay after the first failure. It doubles with each failure,
	// up to MaxRetry. Greylisting requires at least five minutes.
	FirstRetry, MaxRetry time.Duration
	// SendTimeout bounds one attempt. ClaimLease is the time for which a claim is valid; it exceeds
	// SendTimeout by more than the clock skew between machines.
	SendTimeout, ClaimLease time.Duration
	// SettleDelay is the minimum age of a Notice before it is sent, DigestSettleDelay before a
	// digest collects it, since related Notices are recorded one by one.
	SettleDelay, DigestSettleDelay time.Duration
}

// DefaultLimits returns limits that retry for about five days, as mail servers do.
func DefaultLimits() Limits {
	return Limits{
		MaxAttempts: 35, FirstRetry: 5 * time.Minute, MaxRetry: 4 * time.Hour,
		SendTimeout: 6 * time.Minute, ClaimLease: 8 * time.Minute,
		SettleDelay: 5 * time.Second, DigestSettleDelay: 30 * time.Second,
	}
}

// RetryDelay returns the delay after the n-th failed attempt (from 1). It doubles each time, with a
// jitter of up to a fifth derived from the name.
func (l Limits) RetryDelay(name string, n int) time.Duration {
	wait := l.FirstRetry
	for i := 1; i < n && wait < l.MaxRetry; i++ {
		wait *= 2
	}
	wait = min(wait, l.MaxRetry)
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s %d", name, n)
	share := float64(hash.Sum32()%4001)/10000 - 0.2
	return wait + time.Duration(share*float64(wait))
}
