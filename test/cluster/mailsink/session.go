// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// backend makes sessions.
type backend struct {
	config Config
	folder *folder
	log    *slog.Logger
}

// NewSession implements smtp.Backend.
func (b *backend) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{backend: b}, nil }

// session is one client on one connection.
type session struct {
	*backend
	known bool
	to    string
}

// AuthMechanisms implements smtp.AuthSession. The server offers them only under TLS.
func (*session) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth implements smtp.AuthSession.
func (s *session) Auth(mechanism string) (sasl.Server, error) {
	if mechanism != sasl.Plain {
		return nil, smtp.ErrAuthUnknownMechanism
	}
	return sasl.NewPlainServer(func(_, username, password string) error {
		if !same(username, s.config.Username) || !same(password, s.config.Password) {
			return smtp.ErrAuthFailed
		}
		s.known = true
		return nil
	}), nil
}

// same compares in a time that tells nothing of either.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Mail implements smtp.Session.
func (s *session) Mail(string, *smtp.MailOptions) error {
	if !s.known {
		return smtp.ErrAuthRequired
	}
	return nil
}

// Rcpt implements smtp.Session.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

// Data implements smtp.Session. Nothing is written before all of the mail is there.
func (s *session) Data(r io.Reader) error {
	mail, err := io.ReadAll(r)
	var said *smtp.SMTPError
	switch {
	case errors.As(err, &said):
		return err
	case err != nil:
		return fmt.Errorf("reading the mail: %w", err)
	}
	name, err := s.folder.put(time.Now(), s.to, mail)
	if err != nil {
		s.log.Error("a mail was not kept", "error", err)
		return &smtp.SMTPError{Code: 452, EnhancedCode: smtp.EnhancedCode{4, 3, 1}, Message: "The mail cannot be kept now"}
	}
	s.log.Info("kept", "file", name, "bytes", len(mail))
	return nil
}

// Reset implements smtp.Session.
func (s *session) Reset() { s.to = "" }

// Logout implements smtp.Session.
func (*session) Logout() error { return nil }
