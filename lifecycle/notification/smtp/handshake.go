// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"unicode"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// requestStartTLS speaks the part of StartTLS that is in the clear, and returns the
// greeting. It is done here rather than by the SMTP client so that the client's own
// name is said, a refusal is told apart from a missing offer, and words that were
// slipped in before the handshake are noticed (CVE-2011-0411).
func requestStartTLS(conn *limitedConn, hello string, within func() error, at func(Stage)) (greeting []byte, err error) {
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
		return nil, &localFailure{ConfigurationFailure, "the server does not offer STARTTLS; nothing is sent in the clear: check the port, use tls Implicit, or have TLS enabled at the server"}
	}
	if _, err := ask(StageStartTLS, 220, "STARTTLS"); err != nil {
		return nil, err
	}
	if text.R.Buffered()+len(conn.unread) > 0 {
		return nil, &localFailure{ConfigurationFailure, "the server, or somebody between, said more in the clear before the TLS handshake than belongs there"}
	}
	// Only the code of the greeting counts; its lines are joined to one.
	return fmt.Appendf(nil, "220 %s\r\n", strings.ReplaceAll(sanitizeText(said, nil), "\n", " ")), nil
}

func offersStartTLS(offers string) bool {
	for line := range strings.SplitSeq(offers, "\n") {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.EqualFold(word, "STARTTLS") {
			return true
		}
	}
	return false
}

// localFailure is a failure that this side finds, with its kind.
type localFailure struct {
	kind FailureKind
	text string
}

// Error implements error.
func (r *localFailure) Error() string { return r.text }

// textprotoReply is the code and the text of a server's reply that was not the expected
// one, as package textproto gives it.
func textprotoReply(err error) (code int, text string, ok bool) {
	if reply, is := errors.AsType[*textproto.Error](err); is {
		return reply.Code, reply.Msg, true
	}
	return 0, "", false
}

// credentials are those of one connection.
type credentials struct{ user, password string }

// validate refuses what a server would refuse without a word of help.
func (c credentials) validate() error {
	switch {
	case c.user == "" || c.password == "":
		return errors.New("the credentials have no user or no password")
	case strings.ContainsFunc(c.user+c.password, unicode.IsControl):
		return errors.New("the credentials hold a control character, perhaps a line break at the end; store them without it")
	}
	return nil
}

// encodedSecrets are the forms in which the password crosses the wire, for taking them
// out of what a server says.
func (c credentials) encodedSecrets() []string {
	if c.password == "" {
		return nil
	}
	encode := base64.StdEncoding.EncodeToString
	return []string{
		encode([]byte("\x00" + c.user + "\x00" + c.password)),
		encode([]byte(c.password)),
		c.password,
	}
}

// authenticate proves who the sender is. The caller has made sure of TLS.
func authenticate(client *smtp.Client, mode AuthMode, as credentials) error {
	if !client.SupportsAuth(string(mode)) {
		_, offered := client.Extension("AUTH")
		if offered == "" {
			offered = "none"
		}
		return &localFailure{ConfigurationFailure, "the server does not offer AUTH " + string(mode) + "; it offers: " + offered}
	}
	if mode == LoginAuth {
		return client.Auth(&loginMechanism{credentials: as})
	}
	return client.Auth(sasl.NewPlainClient("", as.user, as.password))
}

// loginMechanism is the mechanism LOGIN, which no RFC describes: servers ask for the user
// and then for the password, in words of their own. So it answers by order.
type loginMechanism struct {
	credentials credentials
	challenges  int
}

// Start implements [sasl.Client]. It sends no initial response: some servers take
// none.
func (*loginMechanism) Start() (string, []byte, error) { return sasl.Login, nil, nil }

// Next implements [sasl.Client].
func (l *loginMechanism) Next([]byte) ([]byte, error) {
	l.challenges++
	switch l.challenges {
	case 1:
		return []byte(l.credentials.user), nil
	case 2:
		return []byte(l.credentials.password), nil
	}
	return nil, &localFailure{ConfigurationFailure, "the server asks for more than a user and a password with AUTH LOGIN"}
}
