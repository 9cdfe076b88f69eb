// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/emersion/go-smtp"
)

// FailureKind says what to do about a failure.
type FailureKind string

const (
	// TemporaryFailure: the server has not taken the message; try again later.
	TemporaryFailure FailureKind = "Temporary"
	// RecipientFailure: this message will never be taken for this address. Another
	// address, or another message, may be.
	RecipientFailure FailureKind = "Recipient"
	// ConfigurationFailure: the server has not taken the message and will take none
	// until a person has set something right, here or there. Stop sending, keep
	// the messages, and tell that person.
	ConfigurationFailure FailureKind = "Configuration"
	// UnknownOutcome: the whole message with its final dot went out, and no reply came
	// back. The server may have taken it. Sending it again, with the same
	// Message-ID, is better than losing it.
	UnknownOutcome FailureKind = "Unknown"
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
	Kind FailureKind
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

// maxFailureText is the longest Text in bytes: it ends up in a status.
const maxFailureText = 500

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
	case TemporaryFailure:
		return "temporary"
	case RecipientFailure:
		return "permanent for this message and address"
	case UnknownOutcome:
		return "the server may have taken the message"
	default:
		return "the configuration of the mail has to be set right"
	}
}

// Unwrap is the cause on this side: of the network, the certificate, the context.
// It is nil where a server's reply is the cause.
func (f *Failure) Unwrap() error { return f.cause }

// sanitizeText makes one printable line of at most maxText bytes of what a stranger said,
// with the secrets taken out.
func sanitizeText(said string, secrets []string) string {
	said = redactSecrets(said, secrets)
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
	said = redactSecrets(strings.Join(strings.Fields(said), " "), secrets)
	if len(said) <= maxFailureText {
		return said
	}
	cut := maxFailureText - len("…")
	for !utf8.RuneStart(said[cut]) {
		cut--
	}
	return said[:cut] + "…"
}

func redactSecrets(said string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			said = strings.ReplaceAll(said, secret, "***")
		}
	}
	return said
}

// newFailure makes a *Failure of what went wrong at a stage.
func (s *Sender) newFailure(ctx context.Context, stage Stage, secrets []string, err error) *Failure {
	f := &Failure{Stage: stage, Server: s.server}
	if code, status, text, ok := serverReply(err); ok {
		f.Code, f.Text = code, sanitizeText(text, secrets)
		if status != (enhancedCode{}) {
			f.Enhanced = strconv.Itoa(status.class) + "." + strconv.Itoa(status.subject) + "." + strconv.Itoa(status.detail)
		}
		f.Kind = classifyReply(stage, code, status)
		return f
	}
	if own, is := errors.AsType[*localFailure](err); is {
		f.Kind, f.Text = own.kind, sanitizeText(own.text, secrets)
		return f
	}
	f.Kind = kindWithoutReply(stage)
	if stage == StageTLS && !isNetworkError(err) || stage == StageHello && isTLSAlert(err) {
		f.Kind = ConfigurationFailure
	}
	f.Text, f.cause = sanitizeText(err.Error(), secrets), err
	if cause := context.Cause(ctx); cause != nil {
		f.Text, f.cause = "called off: "+sanitizeText(cause.Error(), secrets), cause
	}
	// What was read and not understood is the server's words, and may be ours.
	var garbled textproto.ProtocolError
	if errors.As(err, &garbled) {
		f.Text, f.cause = sanitizeText("not a reply of an SMTP server: "+garbled.Error(), secrets), nil
	}
	return f
}

// serverReply is what the server answered, where an answer is the cause.
func serverReply(err error) (code int, status enhancedCode, text string, ok bool) {
	if said, is := errors.AsType[*smtp.SMTPError](err); is {
		e := said.EnhancedCode
		return said.Code, enhancedCode{e[0], e[1], e[2]}.validFor(said.Code), said.Message, true
	}
	if code, text, ok := textprotoReply(err); ok {
		status, rest := parseEnhancedCode(text)
		return code, status.validFor(code), rest, true
	}
	return 0, enhancedCode{}, "", false
}

// validFor is the status, where it is one and agrees with the reply code (RFC 2034
// section 4).
func (e enhancedCode) validFor(code int) enhancedCode {
	if e.class != code/100 || e.subject < 0 || e.subject > 999 || e.detail < 0 || e.detail > 999 {
		return enhancedCode{}
	}
	return e
}

// parseEnhancedCode takes the enhanced status code off the text of a reply.
func parseEnhancedCode(text string) (enhancedCode, string) {
	word, rest, _ := strings.Cut(text, " ")
	parts := strings.Split(word, ".")
	if len(parts) != 3 {
		return enhancedCode{}, text
	}
	var figures [3]int
	for i, part := range parts {
		figure, err := strconv.ParseUint(part, 10, 10)
		if err != nil {
			return enhancedCode{}, text
		}
		figures[i] = int(figure)
	}
	return enhancedCode{figures[0], figures[1], figures[2]}, rest
}

// isTLSAlert is whether the server ended TLS with an alert. TLS 1.3 tells a client that
// its own certificate is missing only after the handshake (RFC 8446 section 4.4.2.4).
func isTLSAlert(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && op.Op == "remote error"
}

// isNetworkError is whether an error of a handshake comes of the network, not of what
// the two sides said to each other.
func isNetworkError(err error) bool {
	if slow, is := errors.AsType[net.Error](err); is && slow.Timeout() {
		return true
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		if errors.Is(err, end) {
			return true
		}
	}
	_, is := errors.AsType[syscall.Errno](err)
	return is
}
