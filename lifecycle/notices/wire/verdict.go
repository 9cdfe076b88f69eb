// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/emersion/go-smtp"
)

// failure makes a *Failure of what went wrong at a stage.
func (s *Sender) failure(ctx context.Context, stage Stage, secrets []string, err error) *Failure {
	f := &Failure{Stage: stage, Server: s.server}
	if code, status, text, ok := reply(err); ok {
		f.Code, f.Text = code, plain(text, secrets)
		if status != (enhanced{}) {
			f.Enhanced = strconv.Itoa(status.class) + "." + strconv.Itoa(status.subject) + "." + strconv.Itoa(status.detail)
		}
		f.Kind = classify(stage, code, status)
		return f
	}
	if own, is := errors.AsType[*refusal](err); is {
		f.Kind, f.Text = own.kind, plain(own.text, secrets)
		return f
	}
	f.Kind = unanswered(stage)
	if stage == StageTLS && !ofNetwork(err) || stage == StageHello && ofAlert(err) {
		f.Kind = Configuration
	}
	f.Text, f.cause = plain(err.Error(), secrets), err
	if cause := context.Cause(ctx); cause != nil {
		f.Text, f.cause = "called off: "+plain(cause.Error(), secrets), cause
	}
	// What was read and not understood is the server's words, and may be ours.
	var garbled textproto.ProtocolError
	if errors.As(err, &garbled) {
		f.Text, f.cause = plain("not a reply of an SMTP server: "+garbled.Error(), secrets), nil
	}
	return f
}

// reply is what the server answered, where an answer is the cause.
func reply(err error) (code int, status enhanced, text string, ok bool) {
	if said, is := errors.AsType[*smtp.SMTPError](err); is {
		e := said.EnhancedCode
		return said.Code, enhanced{e[0], e[1], e[2]}.ifOf(said.Code), said.Message, true
	}
	if code, text, ok := asReply(err); ok {
		status, rest := cutEnhanced(text)
		return code, status.ifOf(code), rest, true
	}
	return 0, enhanced{}, "", false
}

// ifOf is the status, where it is one and agrees with the reply code (RFC 2034
// section 4).
func (e enhanced) ifOf(code int) enhanced {
	if e.class != code/100 || e.subject < 0 || e.subject > 999 || e.detail < 0 || e.detail > 999 {
		return enhanced{}
	}
	return e
}

// cutEnhanced takes the enhanced status code off the text of a reply.
func cutEnhanced(text string) (enhanced, string) {
	word, rest, _ := strings.Cut(text, " ")
	parts := strings.Split(word, ".")
	if len(parts) != 3 {
		return enhanced{}, text
	}
	var figures [3]int
	for i, part := range parts {
		figure, err := strconv.ParseUint(part, 10, 10)
		if err != nil {
			return enhanced{}, text
		}
		figures[i] = int(figure)
	}
	return enhanced{figures[0], figures[1], figures[2]}, rest
}

// ofAlert is whether the server ended TLS with an alert. TLS 1.3 tells a client that
// its own certificate is missing only after the handshake (RFC 8446 section 4.4.2.4).
func ofAlert(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && op.Op == "remote error"
}

// ofNetwork is whether an error of a handshake comes of the network, not of what
// the two sides said to each other.
func ofNetwork(err error) bool {
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
