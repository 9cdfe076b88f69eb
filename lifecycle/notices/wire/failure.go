// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind says what to do about a failure.
type Kind string

const (
	// Temporary: the server has not taken the message; try again later.
	Temporary Kind = "Temporary"
	// Recipient: this message will never be taken for this address. Another
	// address, or another message, may be.
	Recipient Kind = "Recipient"
	// Configuration: the server has not taken the message and will take none
	// until a person has set something right, here or there. Stop sending, keep
	// the messages, and tell that person.
	Configuration Kind = "Configuration"
	// Unknown: the whole message with its final dot went out, and no reply came
	// back. The server may have taken it. Sending it again, with the same
	// Message-ID, is better than losing it.
	Unknown Kind = "Unknown"
)

// Stage is the step at which a sending ended.
type Stage string

// The stages in their order. Nothing has been dialled at the first three.
const (
	StageAddress     Stage = "address"     // the envelope is checked
	StageMessage     Stage = "message"     // the message is checked and signed
	StageCredentials Stage = "credentials" // the password is asked for
	StageDial        Stage = "dial"        // name, connection
	StageGreeting    Stage = "greeting"    // the server's first line
	StageHello       Stage = "EHLO"        // EHLO, or HELO
	StageStartTLS    Stage = "STARTTLS"    // the command
	StageTLS         Stage = "TLS"         // the handshake and the certificate
	StageAuth        Stage = "AUTH"
	StageMail        Stage = "MAIL"
	StageRcpt        Stage = "RCPT"
	StageData        Stage = "DATA" // the command
	StageBody        Stage = "body" // the message, up to its final dot
	StageFinal       Stage = "end of message"
)

// Failure is why a message was not handed over. It is the only error that
// [Sender.Send] returns.
type Failure struct {
	// Kind is what to do about it.
	Kind Kind
	// Code is the server's reply code (RFC 5321 section 4.2); 0 without a reply.
	Code int
	// Enhanced is its enhanced status code (RFC 3463), as 5.1.1; may be empty.
	Enhanced string
	// Text is what the server said, or what went wrong: one line of at most 500
	// bytes, without control characters and without the password.
	Text string
	// Stage is the step at which it ended.
	Stage Stage
	// Server is host:port.
	Server string

	cause error
}

// maxText is the longest Text in bytes: it ends up in a status.
const maxText = 500

// Error implements error.
func (f *Failure) Error() string {
	var said strings.Builder
	if f.Code != 0 {
		fmt.Fprintf(&said, "%d ", f.Code)
	}
	if f.Enhanced != "" {
		said.WriteString(f.Enhanced + " ")
	}
	said.WriteString(f.Text)
	return fmt.Sprintf("mail server %s: at %s: %s (%s)", f.Server, f.Stage, said.String(), f.advice())
}

func (f *Failure) advice() string {
	switch f.Kind {
	case Temporary:
		return "temporary"
	case Recipient:
		return "permanent for this message and address"
	case Unknown:
		return "the server may have taken the message"
	default:
		return "the configuration of the mail has to be set right"
	}
}

// Unwrap is the cause on this side: of the network, the certificate, the context.
// It is nil where a server's reply is the cause.
func (f *Failure) Unwrap() error { return f.cause }

// plain makes one printable line of at most maxText bytes of what a stranger said,
// with the secrets taken out.
func plain(said string, secrets []string) string {
	said = without(said, secrets)
	said = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return '?'
		case unicode.IsSpace(r) || !unicode.IsPrint(r):
			return ' '
		}
		return r
	}, said)
	// Once more: one line may show a secret that was broken up before.
	said = without(strings.Join(strings.Fields(said), " "), secrets)
	if len(said) <= maxText {
		return said
	}
	cut := maxText - len("…")
	for !utf8.RuneStart(said[cut]) {
		cut--
	}
	return said[:cut] + "…"
}

func without(said string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			said = strings.ReplaceAll(said, secret, "***")
		}
	}
	return said
}
