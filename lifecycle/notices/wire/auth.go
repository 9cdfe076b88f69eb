// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// credentials are those of one connection.
type credentials struct{ user, password string }

// check refuses what a server would refuse without a word of help.
func (c credentials) check() error {
	switch {
	case c.user == "" || c.password == "":
		return errors.New("the credentials have no user or no password")
	case strings.ContainsFunc(c.user+c.password, unicode.IsControl):
		return errors.New("the credentials hold a control character, perhaps a line break at the end; store them without it")
	}
	return nil
}

// secrets are the forms in which the password crosses the wire, for taking them
// out of what a server says.
func (c credentials) secrets() []string {
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
		return &refusal{Configuration, "the server does not offer AUTH " + string(mode) + "; it offers: " + offered}
	}
	if mode == LoginAuth {
		return client.Auth(&login{as: as})
	}
	return client.Auth(sasl.NewPlainClient("", as.user, as.password))
}

// login is the mechanism LOGIN, which no RFC describes: servers ask for the user
// and then for the password, in words of their own. So it answers by order.
type login struct {
	as    credentials
	asked int
}

// Start implements [sasl.Client]. It sends no initial response: some servers take
// none.
func (*login) Start() (string, []byte, error) { return sasl.Login, nil, nil }

// Next implements [sasl.Client].
func (l *login) Next([]byte) ([]byte, error) {
	l.asked++
	switch l.asked {
	case 1:
		return []byte(l.as.user), nil
	case 2:
		return []byte(l.as.password), nil
	}
	return nil, &refusal{Configuration, "the server asks for more than a user and a password with AUTH LOGIN"}
}
