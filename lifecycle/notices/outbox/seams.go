// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"

	"sluice.dev/api/v1alpha1"
)

// Letter is what a mail is made of.
type Letter struct {
	// Notice is the message, and Carried are those that it carries, if it is a digest.
	Notice  *v1alpha1.Notice
	Carried []*v1alpha1.Notice
	// Sequence and Cancelled are its appointment's: see [Sequence] and [Cancelled].
	// Sequences are those of the Notices that it carries, by their names.
	Sequence  int
	Sequences map[string]int
	Cancelled bool
}

// Mail is a whole mail.
type Mail struct {
	// MessageID is its Message-ID, with angle brackets.
	MessageID string
	// Bytes are what goes over the wire.
	Bytes []byte
}

// Composer writes mails. The same letter must get the same Message-ID at each
// attempt. It is called before anybody is spoken to.
type Composer interface {
	Compose(ctx context.Context, letter Letter) (*Mail, error)
}

// Carrier brings a mail to the mail server. It returns nil only where the server has
// taken the mail, and a [Failure] where it can tell more than that it failed. It ends
// when ctx does, and is called from several goroutines.
type Carrier interface {
	Send(ctx context.Context, to string, mail []byte) error
}

// Fault tells whose fault it is that a mail was not sent.
type Fault string

// The faults.
const (
	// Temporary: the server does not want this mail now.
	Temporary Fault = "Temporary"
	// Server: it cannot be reached, or takes nothing at all now.
	Server Fault = "Server"
	// Recipient: it will never take mail to this address.
	Recipient Fault = "Recipient"
	// Configuration: Sluice's own; no mail will be sent until that has changed.
	Configuration Fault = "Configuration"
	// Unknown: the whole mail was sent, and no answer came. It may have arrived.
	Unknown Fault = "Unknown"
)

// Failure is an error of a [Carrier] or a [Composer].
type Failure struct {
	// Fault is whose fault it is.
	Fault Fault
	// Late is that the server had heard whom the mail is for: what it says of itself may
	// be this mail's doing, so that the next time others are tried first.
	Late bool
	// Err is what happened, without secrets.
	Err error
}

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns what happened.
func (f *Failure) Unwrap() error { return f.Err }
