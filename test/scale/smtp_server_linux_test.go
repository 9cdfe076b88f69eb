// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"k8s.io/client-go/util/cert"
)

// The account of the SMTP server.
const (
	smtpUser     = "lifecycle"
	smtpPassword = "not a secret"
)

// smtpServer is an SMTP server that accepts all mail, with STARTTLS and a password, and
// records the Message-ID and the recipients of each.
type smtpServer struct {
	address string
	// authority is the file with the CA certificate.
	authority string

	mu       sync.Mutex
	received map[string][]string // recipients by Message-ID
	count    int
	// first and last are the times of the first and the last mail.
	first, last time.Time
}

// startSMTPServer starts a server that stops at the end of the test.
func startSMTPServer(tb testing.TB) *smtpServer {
	tb.Helper()
	authority := filepath.Join(tb.TempDir(), "tls.crt")
	signed, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	mustSucceed(tb, err)
	mustSucceed(tb, os.WriteFile(authority, signed, 0o600))
	certificate, err := tls.X509KeyPair(signed, key)
	mustSucceed(tb, err)
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	mustSucceed(tb, err)
	p := &smtpServer{address: listener.Addr().String(), authority: authority}
	p.reset()
	server := smtp.NewServer(p)
	server.Domain = "localhost"
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.ErrorLog = log.New(io.Discard, "", 0)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // returns when the server is closed
	tb.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return p
}

// reset removes all recorded mails.
func (p *smtpServer) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.received, p.count, p.first, p.last = map[string][]string{}, 0, time.Time{}, time.Time{}
}

// receivedCount returns the number of accepted mails.
func (p *smtpServer) receivedCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// NewSession implements smtp.Backend.
func (p *smtpServer) NewSession(*smtp.Conn) (smtp.Session, error) {
	return &smtpSession{server: p}, nil
}

// smtpSession is one client on one connection.
type smtpSession struct {
	server *smtpServer
	to     string
}

func (*smtpSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (*smtpSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != smtpUser || password != smtpPassword {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

func (*smtpSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *smtpSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

func (s *smtpSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	message, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		return err
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	id := message.Header.Get("Message-ID")
	s.server.received[id] = append(s.server.received[id], s.to)
	s.server.count++
	s.server.last = time.Now()
	if s.server.first.IsZero() {
		s.server.first = s.server.last
	}
	return nil
}

func (s *smtpSession) Reset()      { s.to = "" }
func (*smtpSession) Logout() error { return nil }
