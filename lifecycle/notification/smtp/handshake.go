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

// requestStartTLS runs the plaintext phase of STARTTLS and returns the greeting. It sends the
// client's own name, distinguishes a refusal from a missing offer, and detects replies injected
// before the handshake (CVE-2011-0411).
func requestStartTLS(conn *limitedConn, hello string, within func() error, at func(Stage)) (greeting []byte, err error) {
	text := textproto.Conn{
		Reader: textproto.Reader{R: bufio.NewReader(conn)},
		Writer: textproto.Writer{W: bufio.NewWriter(conn)},
	}
	request := func(stage Stage, expect int, command string) (string, error) {
		at(stage)
		if err := within(); err != nil {
			return "", err
		}
		if command != "" {
			if err := text.PrintfLine("%s", command); err != nil {
				return "", err
			}
		}
		_, reply, err := text.ReadResponse(expect)
		return reply, err
	}

	greetingText, err := request(StageGreeting, 220, "")
	if err != nil {
		return nil, err
	}
	extensions, err := request(StageHello, 250, "EHLO "+hello)
	if err != nil {
		return nil, err
	}
	if !offersStartTLS(extensions) {
		at(StageStartTLS)
		text := "the server does not offer STARTTLS; mail is sent over TLS only: check the port, use tls Implicit, or enable TLS there"
		return nil, &localFailure{ConfigurationFailure, text}
	}
	if _, err := request(StageStartTLS, 220, "STARTTLS"); err != nil {
		return nil, err
	}
	if text.R.Buffered()+len(conn.unread) > 0 {
		return nil, &localFailure{ConfigurationFailure, "the server or an attacker on the network sent data before the TLS handshake"}
	}
	// The SMTP client reads the greeting again; only its code matters.
	return fmt.Appendf(nil, "220 %s\r\n", strings.ReplaceAll(sanitizeText(greetingText, nil), "\n", " ")), nil
}

func offersStartTLS(extensions string) bool {
	for line := range strings.SplitSeq(extensions, "\n") {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.EqualFold(word, "STARTTLS") {
			return true
		}
	}
	return false
}

// localFailure is a failure detected by the client.
type localFailure struct {
	kind FailureKind
	text string
}

// Error implements error.
func (r *localFailure) Error() string { return r.text }

// textprotoReply returns code and text of an unexpected reply as reported by package textproto.
func textprotoReply(err error) (code int, text string, ok bool) {
	if reply, is := errors.AsType[*textproto.Error](err); is {
		return reply.Code, reply.Msg, true
	}
	return 0, "", false
}

// credentials authenticate one connection.
type credentials struct{ user, password string }

// validate refuses credentials that a server would refuse without explanation.
func (c credentials) validate() error {
	switch {
	case c.user == "" || c.password == "":
		return errors.New("the credentials have no user or no password")
	case strings.ContainsFunc(c.user+c.password, unicode.IsControl):
		return errors.New("the credentials hold a control character, perhaps a line break at the end; store them without it")
	}
	return nil
}

// encodedSecrets returns the encodings of the password on the wire, for redacting them in
// replies.
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

// authenticate authenticates the client. The caller ensures TLS.
func authenticate(client *smtp.Client, mode AuthMode, creds credentials) error {
	if !client.SupportsAuth(string(mode)) {
		_, offered := client.Extension("AUTH")
		if offered == "" {
			offered = "none"
		}
		return &localFailure{ConfigurationFailure, "the server does not offer AUTH " + string(mode) + "; it offers: " + offered}
	}
	if mode == LoginAuth {
		return client.Auth(&loginMechanism{credentials: creds})
	}
	return client.Auth(sasl.NewPlainClient("", creds.user, creds.password))
}

// loginMechanism implements LOGIN, which no RFC specifies: servers request the user and then
// the password with arbitrary challenges, so it responds by order.
type loginMechanism struct {
	credentials credentials
	challenges  int
}

// Start implements [sasl.Client]. It sends no initial response, since some servers refuse one.
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
	return nil, &localFailure{ConfigurationFailure, "the server requests more than a user and a password with AUTH LOGIN"}
}
