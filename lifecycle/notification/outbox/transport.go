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

// ComposeRequest is what a mail is made of.
type ComposeRequest struct {
	// Notice is the message, and Carried are those that it carries, if it is a digest.
	Notice  *v1alpha1.Notice
	Carried []*v1alpha1.Notice
	// Sequence and Cancelled are its appointment's: see [Sequence] and [Cancelled].
	// Sequences are those of the Notices that it carries, by their names.
	Sequence  int
	Sequences map[string]int
	Canceled  bool
}

// Message is a whole mail.
type Message struct {
	// MessageID is its Message-ID, with angle brackets.
	MessageID string
	// Bytes are what goes over the wire.
	Bytes []byte
}

// Composer writes mails. The same letter must get the same Message-ID at each
// attempt. It is called before anybody is spoken to.
type Composer interface {
	Compose(ctx context.Context, letter ComposeRequest) (*Message, error)
}

// Transport brings a mail to the mail server. It returns nil only where the server has
// taken the mail, and a [Failure] where it can tell more than that it failed. It ends
// when ctx does, and is called from several goroutines.
type Transport interface {
	Send(ctx context.Context, to string, mail []byte) error
}

// FailureKind tells whose fault it is that a mail was not sent.
type FailureKind string

// The faults.
const (
	// TemporaryFailure: the server does not want this mail now.
	TemporaryFailure FailureKind = "Temporary"
	// ServerFailure: it cannot be reached, or takes nothing at all now.
	ServerFailure FailureKind = "Server"
	// RecipientFailure: it will never take mail to this address.
	RecipientFailure FailureKind = "Recipient"
	// ConfigurationFailure: Sluice's own; no mail will be sent until that has changed.
	ConfigurationFailure FailureKind = "Configuration"
	// UnknownOutcome: the whole mail was sent, and no answer came. It may have arrived.
	UnknownOutcome FailureKind = "Unknown"
)

// Failure is an error of a [Carrier] or a [Composer].
type Failure struct {
	// Kind is whose fault it is.
	Kind FailureKind
	// AfterRecipient is that the server had heard whom the mail is for: what it says of itself may
	// be this mail's doing, so that the next time others are tried first.
	AfterRecipient bool
	// Err is what happened, without secrets.
	Err error
}

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns what happened.
func (f *Failure) Unwrap() error { return f.Err }

// Limits bound how often and for how long a Notice is tried, in machine time.
type Limits struct {
	// MaxAttempts is how often it is tried. A try for which the way to the mail server,
	// or Sluice's own configuration, was not in order is not counted.
	MaxAttempts int
	// FirstRetry is about how long after the first failure it is tried again; with
	// each further one twice that, up to LongestRetry. A mail server that greylists
	// wants five minutes at least.
	FirstRetry, MaxRetry time.Duration
	// SendTimeout is how long one attempt may take, and Lease for how long a claim is
	// respected: longer, by more than what the clocks of two machines differ.
	SendTimeout, ClaimLease time.Duration
	// SettleDelay is how old a Notice is before it is sent, and DigestSettle before a
	// digest collects it: its siblings are recorded at the same time, one by one.
	SettleDelay, DigestSettleDelay time.Duration
}

// DefaultLimits try a message for about five days, as mail servers themselves do.
func DefaultLimits() Limits {
	return Limits{
		MaxAttempts: 35, FirstRetry: 5 * time.Minute, MaxRetry: 4 * time.Hour,
		SendTimeout: 6 * time.Minute, ClaimLease: 8 * time.Minute,
		SettleDelay: 5 * time.Second, DigestSettleDelay: 30 * time.Second,
	}
}

// RetryDelay is how long after the n-th failed attempt (from 1) the next one is: doubled
// each time, and up to a fifth more or less, which the name decides, so that what
// failed together is not tried together.
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
