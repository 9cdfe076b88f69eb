// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/mail"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"sluice.dev/test/cluster"
)

// The account of the post office.
const (
	postUser     = "lifecycle"
	postPassword = "not a secret"
)

// postOffice is a mail server that takes all mail, over STARTTLS with a password, and
// keeps of each what tells it from others.
type postOffice struct {
	address string
	// authority is the file with the certificate of who vouches for it.
	authority string

	mu    sync.Mutex
	taken map[string][]string // to whom, by Message-ID
	count int
	// first and last are when the first and the last mail was taken.
	first, last time.Time
}

// openPostOffice serves until the test ends.
func openPostOffice(tb testing.TB, c *cluster.Cluster) *postOffice {
	tb.Helper()
	dir := tb.TempDir()
	check(tb, c.IssueServing("localhost", dir))
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	check(tb, err)
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	check(tb, err)
	p := &postOffice{address: listener.Addr().String(), authority: filepath.Join(dir, "ca.crt")}
	p.empty()
	server := smtp.NewServer(p)
	server.Domain = "localhost"
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.ErrorLog = log.New(io.Discard, "", 0)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until it is closed
	tb.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return p
}

// empty forgets all mail.
func (p *postOffice) empty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken, p.count, p.first, p.last = map[string][]string{}, 0, time.Time{}, time.Time{}
}

// has is how many mails it has taken.
func (p *postOffice) has() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// NewSession implements smtp.Backend.
func (p *postOffice) NewSession(*smtp.Conn) (smtp.Session, error) { return &postSession{at: p}, nil }

// postSession is one client on one connection.
type postSession struct {
	at *postOffice
	to string
}

func (*postSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (*postSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != postUser || password != postPassword {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

func (*postSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *postSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

func (s *postSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	message, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		return err
	}
	s.at.mu.Lock()
	defer s.at.mu.Unlock()
	id := message.Header.Get("Message-ID")
	s.at.taken[id] = append(s.at.taken[id], s.to)
	s.at.count++
	s.at.last = time.Now()
	if s.at.first.IsZero() {
		s.at.first = s.at.last
	}
	return nil
}

func (s *postSession) Reset()      { s.to = "" }
func (*postSession) Logout() error { return nil }
