// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

const (
	// MaxSize is the maximum size of a mail in bytes: 10 MiB.
	MaxSize = 10 << 20
	// idleTimeout limits how long a client may be silent.
	idleTimeout = time.Minute
	// shutdownTimeout limits how long a mail in progress may take when the sink stops.
	shutdownTimeout = 3 * time.Second
)

// Run accepts mail until ctx ends, and then returns nil. It fails at once if the
// certificate cannot be read, the folder cannot be created or the address is in use.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("mail sink: %w", err)
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(cfg.Certificates, "tls.crt"), filepath.Join(cfg.Certificates, "tls.key"))
	if err != nil {
		return fmt.Errorf("mail sink: certificates: %w", err)
	}
	folder, err := openMailFolder(cfg.Dir)
	if err != nil {
		return fmt.Errorf("mail sink: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("mail sink: %w", err)
	}
	server := smtp.NewServer(&backend{config: cfg, folder: folder, log: log})
	server.Domain = "localhost"
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.MaxMessageBytes = MaxSize
	server.MaxRecipients = 1 // one file has one recipient; clients send the mail again for the next one
	server.ReadTimeout, server.WriteTimeout = idleTimeout, idleTimeout
	server.EnableSMTPUTF8 = true
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	log.Info("Accepting mail", "address", listener.Addr().String())
	select {
	case err := <-ended:
		return fmt.Errorf("mail sink: %w", err)
	case <-ctx.Done():
	}
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(graceful); err != nil && !errors.Is(err, net.ErrClosed) {
		_ = server.Close() // open connections are closed; their mail is not stored, and the client sends it again
	}
	return nil
}

// backend creates sessions.
type backend struct {
	config Config
	folder *mailFolder
	log    *slog.Logger
}

// NewSession implements smtp.Backend.
func (b *backend) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{backend: b}, nil }

// session is a client's session on a connection.
type session struct {
	*backend
	authenticated bool
	to            string
}

// AuthMechanisms implements smtp.AuthSession. The server offers the mechanisms only under
// TLS.
func (*session) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth implements smtp.AuthSession.
func (s *session) Auth(mechanism string) (sasl.Server, error) {
	if mechanism != sasl.Plain {
		return nil, smtp.ErrAuthUnknownMechanism
	}
	return sasl.NewPlainServer(func(_, username, password string) error {
		if !constantTimeEqual(username, s.config.Username) || !constantTimeEqual(password, s.config.Password) {
			return smtp.ErrAuthFailed
		}
		s.authenticated = true
		return nil
	}), nil
}

// constantTimeEqual compares in constant time, which reveals nothing about the values.
func constantTimeEqual(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Mail implements smtp.Session.
func (s *session) Mail(string, *smtp.MailOptions) error {
	if !s.authenticated {
		return smtp.ErrAuthRequired
	}
	return nil
}

// undeliverable is the top-level domain that no mail server delivers to: RFC 6761, section 6.4.
const undeliverable = ".invalid"

// Rcpt implements smtp.Session. It refuses addresses that cannot exist.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if strings.HasSuffix(strings.ToLower(to), undeliverable) {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such mailbox"}
	}
	s.to = to
	return nil
}

// Data implements smtp.Session. It stores only complete mails.
func (s *session) Data(r io.Reader) error {
	mail, err := io.ReadAll(r)
	var protocolErr *smtp.SMTPError
	switch {
	case errors.As(err, &protocolErr):
		return err
	case err != nil:
		return fmt.Errorf("read mail: %w", err)
	}
	name, err := s.folder.store(time.Now(), s.to, mail)
	if err != nil {
		s.log.Error("Failed to store mail", "error", err)
		return &smtp.SMTPError{Code: 452, EnhancedCode: smtp.EnhancedCode{4, 3, 1}, Message: "The mail cannot be stored now"}
	}
	s.log.Info("Stored mail", "file", name, "bytes", len(mail))
	return nil
}

// Reset implements smtp.Session.
func (s *session) Reset() { s.to = "" }

// Logout implements smtp.Session.
func (*session) Logout() error { return nil }

// Ready returns a function that calls the sink at an address; nil means that it accepts
// mail.
func Ready(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer connection.Close()
		if until, ok := ctx.Deadline(); ok {
			if err := connection.SetDeadline(until); err != nil {
				return err
			}
		}
		greeting := make([]byte, 128)
		n, err := connection.Read(greeting)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(string(greeting[:n]), "220 ") {
			return fmt.Errorf("%s does not greet as a mail server does", address)
		}
		return nil
	}
}
