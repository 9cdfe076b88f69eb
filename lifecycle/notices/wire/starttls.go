// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// askForTLS speaks the part of StartTLS that is in the clear, and returns the
// greeting. It is done here rather than by the SMTP client so that the client's own
// name is said, a refusal is told apart from a missing offer, and words that were
// slipped in before the handshake are noticed (CVE-2011-0411).
func askForTLS(conn *guard, hello string, within func() error, at func(Stage)) (greeting []byte, err error) {
	text := textproto.Conn{
		Reader: textproto.Reader{R: bufio.NewReader(conn)},
		Writer: textproto.Writer{W: bufio.NewWriter(conn)},
	}
	ask := func(stage Stage, expect int, command string) (string, error) {
		at(stage)
		if err := within(); err != nil {
			return "", err
		}
		if command != "" {
			if err := text.PrintfLine("%s", command); err != nil {
				return "", err
			}
		}
		_, said, err := text.ReadResponse(expect)
		return said, err
	}

	said, err := ask(StageGreeting, 220, "")
	if err != nil {
		return nil, err
	}
	offers, err := ask(StageHello, 250, "EHLO "+hello)
	if err != nil {
		return nil, err
	}
	if !offersStartTLS(offers) {
		at(StageStartTLS)
		return nil, &refusal{Configuration, "the server does not offer STARTTLS; nothing is sent in the clear: check the port, use tls Implicit, or have TLS enabled at the server"}
	}
	if _, err := ask(StageStartTLS, 220, "STARTTLS"); err != nil {
		return nil, err
	}
	if text.R.Buffered()+len(conn.said) > 0 {
		return nil, &refusal{Configuration, "the server, or somebody between, said more in the clear before the TLS handshake than belongs there"}
	}
	// Only the code of the greeting counts; its lines are joined to one.
	return fmt.Appendf(nil, "220 %s\r\n", strings.ReplaceAll(plain(said, nil), "\n", " ")), nil
}

func offersStartTLS(offers string) bool {
	for line := range strings.SplitSeq(offers, "\n") {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.EqualFold(word, "STARTTLS") {
			return true
		}
	}
	return false
}

// refusal is a failure that this side finds, with its kind.
type refusal struct {
	kind Kind
	text string
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

// asReply is the code and the text of a server's reply that was not the expected
// one, as package textproto gives it.
func asReply(err error) (code int, text string, ok bool) {
	if reply, is := errors.AsType[*textproto.Error](err); is {
		return reply.Code, reply.Msg, true
	}
	return 0, "", false
}
