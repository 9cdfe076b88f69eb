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

// FailureKind classifies a failure by what to do about it.
type FailureKind string

const (
	// TemporaryFailure: the server did not accept the message; retry later.
	TemporaryFailure FailureKind = "Temporary"
	// RecipientFailure: the server will never accept this message for this address. Another
	// address or another message may succeed.
	RecipientFailure FailureKind = "Recipient"
	// DeniedFailure: the server denies Sluice this recipient, such as by "relay access denied".
	// The recipient or the configuration is the cause; only replies for other recipients
	// show which.
	DeniedFailure FailureKind = "Denied"
	// ConfigurationFailure: the server did not accept the message and will accept none until
	// an administrator corrects the configuration of Sluice or of the server. Stop sending,
	// keep the messages, and notify the administrator.
	ConfigurationFailure FailureKind = "Configuration"
	// UnknownOutcome: the complete message was sent and no reply was received. The server may
	// have accepted it. Sending it again with the same Message-ID is better than losing it.
	UnknownOutcome FailureKind = "Unknown"
)

// Stage is the step at which a Send failed.
type Stage string

// The stages in order. The first three precede dialing.
const (
	StageAddress     Stage = "address"     // the envelope is checked
	StageMessage     Stage = "message"     // the message is checked and signed
	StageCredentials Stage = "credentials" // the credentials are read
	StageDial        Stage = "dial"        // name, connection
	StageGreeting    Stage = "greeting"    // the server's first line
	StageHello       Stage = "EHLO"        // EHLO, or HELO
	StageStartTLS    Stage = "STARTTLS"    // the command
	StageTLS         Stage = "TLS"         // the handshake and the certificate
	StageAuth        Stage = "AUTH"
	StageMail        Stage = "MAIL"
	StageRcpt        Stage = "RCPT"
	StageData        Stage = "DATA" // the command
	StageBody        Stage = "body" // the message, before its final dot
	StageFinal       Stage = "end of message"
)

// Failure says why a message was not submitted. It is the only error type that
// [Sender.Send] returns.
type Failure struct {
	// Kind says what to do about it.
	Kind FailureKind
	// Code is the server's reply code (RFC 5321 section 4.2); 0 without a reply.
	Code int
	// Enhanced is its enhanced status code (RFC 3463), as 5.1.1; may be empty.
	Enhanced string
	// Text is the server's reply or the local error: one line of at most 500 bytes, without
	// control characters and without the password.
	Text string
	// Stage is the failed step.
	Stage Stage
	// Server is host:port.
	Server string

	cause error
}

// maxFailureText bounds Text in bytes, since it is written to a status.
const maxFailureText = 500

// Error implements error.
func (f *Failure) Error() string {
	var reply strings.Builder
	if f.Code != 0 {
		fmt.Fprintf(&reply, "%d ", f.Code)
	}
	if f.Enhanced != "" {
		reply.WriteString(f.Enhanced + " ")
	}
	reply.WriteString(f.Text)
	return fmt.Sprintf("mail server %s: at %s: %s (%s)", f.Server, f.Stage, reply.String(), f.advice())
}

func (f *Failure) advice() string {
	switch f.Kind {
	case TemporaryFailure:
		return "temporary"
	case RecipientFailure:
		return "permanent for this message and address"
	case DeniedFailure:
		return "the server denies this recipient"
	case UnknownOutcome:
		return "the server may have accepted the message"
	default:
		return "the mail configuration must be corrected"
	}
}

// Summary returns the failure without the server's words and without the envelope, which may
// contain an address. It is meant for logs.
func (f *Failure) Summary() string {
	text := f.Text
	if f.Code != 0 {
		text = strings.TrimSpace(strconv.Itoa(f.Code) + " " + f.Enhanced)
	} else if f.Stage == StageAddress {
		text = "invalid address"
	}
	return fmt.Sprintf("mail server %s: at %s: %s (%s)", f.Server, f.Stage, text, f.advice())
}

// Unwrap returns the local cause, such as a network, certificate or context error. It is nil if
// a server's reply is the cause.
func (f *Failure) Unwrap() error { return f.cause }

// sanitizeText turns untrusted text into one printable line of at most maxFailureText bytes,
// with the secrets redacted.
func sanitizeText(text string, secrets []string) string {
	text = redactSecrets(text, secrets)
	text = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return '?'
		case unicode.IsSpace(r) || !unicode.IsPrint(r):
			return ' '
		}
		return r
	}, text)
	// Redact again: joining lines may reassemble a secret.
	text = redactSecrets(strings.Join(strings.Fields(text), " "), secrets)
	if len(text) <= maxFailureText {
		return text
	}
	cut := maxFailureText - len("…")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

func redactSecrets(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// newFailure returns the *Failure for an error at a stage.
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
	if local, is := errors.AsType[*localFailure](err); is {
		f.Kind, f.Text = local.kind, sanitizeText(local.text, secrets)
		return f
	}
	f.Kind = kindWithoutReply(stage)
	if stage == StageTLS && !isNetworkError(err) || stage == StageHello && isTLSAlert(err) {
		f.Kind = ConfigurationFailure
	}
	f.Text, f.cause = sanitizeText(err.Error(), secrets), err
	if cause := context.Cause(ctx); cause != nil {
		f.Text, f.cause = "canceled: "+sanitizeText(cause.Error(), secrets), cause
	}
	// An invalid reply may contain an echo of the client's own words.
	var invalid textproto.ProtocolError
	if errors.As(err, &invalid) {
		f.Text, f.cause = sanitizeText("not a reply of an SMTP server: "+invalid.Error(), secrets), nil
	}
	return f
}

// serverReply returns the server's reply if a reply is the cause.
func serverReply(err error) (code int, status enhancedCode, text string, ok bool) {
	if reply, is := errors.AsType[*smtp.SMTPError](err); is {
		e := reply.EnhancedCode
		return reply.Code, enhancedCode{e[0], e[1], e[2]}.validFor(reply.Code), reply.Message, true
	}
	if code, text, ok := textprotoReply(err); ok {
		status, rest := parseEnhancedCode(text)
		return code, status.validFor(code), rest, true
	}
	return 0, enhancedCode{}, "", false
}

// validFor returns the code if it is valid and agrees with the reply code (RFC 2034 section 4),
// and zero otherwise.
func (e enhancedCode) validFor(code int) enhancedCode {
	if e.class != code/100 || e.subject < 0 || e.subject > 999 || e.detail < 0 || e.detail > 999 {
		return enhancedCode{}
	}
	return e
}

// parseEnhancedCode splits the enhanced status code from the text of a reply.
func parseEnhancedCode(text string) (enhancedCode, string) {
	word, rest, _ := strings.Cut(text, " ")
	parts := strings.Split(word, ".")
	if len(parts) != 3 {
		return enhancedCode{}, text
	}
	var numbers [3]int
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 10)
		if err != nil {
			return enhancedCode{}, text
		}
		numbers[i] = int(number)
	}
	return enhancedCode{numbers[0], numbers[1], numbers[2]}, rest
}

// isTLSAlert reports whether the server ended TLS with an alert. In TLS 1.3 a missing client
// certificate is reported only after the handshake (RFC 8446 section 4.4.2.4).
func isTLSAlert(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && op.Op == "remote error"
}

// isNetworkError reports whether a handshake failed because of the network rather than the TLS
// protocol.
func isNetworkError(err error) bool {
	if slow, is := errors.AsType[net.Error](err); is && slow.Timeout() {
		return true
	}
	for _, end := range []error{
		io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded,
	} {
		if errors.Is(err, end) {
			return true
		}
	}
	_, is := errors.AsType[syscall.Errno](err)
	return is
}
