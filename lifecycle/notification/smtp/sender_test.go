// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"
)

func newMemorySender(t *testing.T, backend *fakeBackend, reuse Reuse) (*Sender, *memoryListener) {
	t.Helper()
	wire := newMemoryListener()
	serve(t, wire, backend, nil)
	return newTestSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial, Timeouts: shortTimeouts(), Reuse: reuse}), wire
}

func sendTo(t *testing.T, s *Sender, to string) error {
	t.Helper()
	return s.Send(t.Context(), Envelope{testSender, to}, []byte(testMessage))
}

func TestConnectionReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &fakeBackend{}
		s, wire := newMemorySender(t, backend, Reuse{Messages: 3})
		for n := range 7 {
			if err := sendTo(t, s, fmt.Sprintf("n%d@example.org", n)); err != nil {
				t.Fatal(err)
			}
		}
		if got := backend.receivedMessages(); len(got) != 7 || got[6].To != "n6@example.org" {
			t.Errorf("the server has %+v", got)
		}
		if backend.sessions != 3 {
			t.Errorf("%d connections for 7 messages of 3 each, want 3", backend.sessions)
		}
		time.Sleep(6 * time.Second) // longer than the idle time
		wire.open.Wait()            // until the server sees the end
		if err := sendTo(t, s, testRecipient); err != nil {
			t.Fatal(err)
		}
		if backend.sessions != 4 {
			t.Errorf("%d connections after the idle one has ended, want 4", backend.sessions)
		}
		s.Close()
		wire.open.Wait()
	})
}

// TestStaleConnection runs against a server that closes idle connections first, with and without a
// reply.
func TestStaleConnection(t *testing.T) {
	for name, end := range map[string]func(int) error{
		"with 421": func(nth int) error {
			if nth == 2 {
				return &smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 4, 2}, Message: "idle"}
			}
			return nil
		},
		"without a reply": nil,
	} {
		t.Run(name, func(t *testing.T) {
			backend := &fakeBackend{mail: end}
			var last net.Conn
			s, wire := newMemorySender(t, backend, Reuse{Idle: time.Hour})
			s.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := wire.dial(ctx, network, address)
				last = conn
				return conn, err
			}
			if err := sendTo(t, s, testRecipient); err != nil {
				t.Fatal(err)
			}
			if end == nil {
				last.Close()
			}
			if err := sendTo(t, s, testRecipient); err != nil {
				t.Fatal(err)
			}
			if len(backend.receivedMessages()) != 2 || backend.sessions != 2 {
				t.Errorf("%d messages over %d connections, want 2 over 2", len(backend.receivedMessages()), backend.sessions)
			}
		})
	}
}

// TestFailureEndsConnection: a refused recipient does not receive the next message.
func TestFailureEndsConnection(t *testing.T) {
	t.Parallel()
	backend := &fakeBackend{rcpt: func(nth int) error {
		if nth == 2 {
			return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
		}
		return nil
	}}
	s, wire := newMemorySender(t, backend, Reuse{})
	var kinds []FailureKind
	for n := range 3 {
		if f := requireFailure(t, sendTo(t, s, fmt.Sprintf("n%d@example.org", n))); f != nil {
			kinds = append(kinds, f.Kind)
		}
	}
	s.Close()
	wire.open.Wait()
	if diff := cmp.Diff([]FailureKind{RecipientFailure}, kinds); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	if got := backend.receivedMessages(); len(got) != 2 || got[0].To != "n0@example.org" || got[1].To != "n2@example.org" {
		t.Errorf("the server has %+v", got)
	}
	if backend.sessions != 2 {
		t.Errorf("%d connections, want 2", backend.sessions)
	}
}

// TestPasswordRotation changes the Secret and the server's password: the next connection uses it.
func TestPasswordRotation(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	backend := &fakeBackend{mechanisms: []string{"PLAIN"}, user: "sluice", password: "old one"}
	listener, host, port := listen(t)
	serve(t, listener, backend, func(s *smtp.Server) { s.TLSConfig = ca.serverConfig(t, tomorrow()) })
	current := "old one"
	s := newTestSender(t, Config{
		Host: host, Port: port, CA: ca.pem, Timeouts: shortTimeouts(), Reuse: Reuse{Messages: 1}, Auth: PlainAuth,
		Credentials: func(context.Context) (string, string, error) { return "sluice", current, nil },
	})
	var codes []int
	try := func() {
		code := 0
		if f := requireFailure(t, sendTo(t, s, testRecipient)); f != nil {
			code = f.Code
		}
		codes = append(codes, code)
	}
	try()
	backend.mu.Lock()
	backend.password = "new one"
	backend.mu.Unlock()
	try()
	current = "new one"
	try()
	if diff := cmp.Diff([]int{0, 535, 0}, codes); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
}

func TestConcurrentSends(t *testing.T) {
	t.Parallel()
	backend := &fakeBackend{}
	s, wire := newMemorySender(t, backend, Reuse{})
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			if err := sendTo(t, s, fmt.Sprintf("n%d@example.org", n)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s.Close()
	wire.open.Wait()
	to := map[string]bool{}
	for _, d := range backend.receivedMessages() {
		if to[d.To] || d.Data != testMessage {
			t.Errorf("twice or changed: %+v", d)
		}
		to[d.To] = true
	}
	if len(to) != 50 {
		t.Errorf("the server has messages for %d recipients, want 50", len(to))
	}
}

// BenchmarkSend measures submissions over TLS with a password to a server on the same machine.
func BenchmarkSend(b *testing.B) {
	ca := newTestCA(b)
	for _, c := range []struct {
		name     string
		messages int
	}{{"one connection each", 1}, {"100 per connection", 100}} {
		b.Run(c.name, func(b *testing.B) {
			backend := &fakeBackend{mechanisms: []string{"PLAIN"}, user: "sluice", password: testPassword}
			listener, host, port := listen(b)
			serve(b, listener, backend, func(s *smtp.Server) { s.TLSConfig = ca.serverConfig(b, tomorrow()) })
			s := newTestSender(b, Config{
				Host: host, Port: port, CA: ca.pem, Reuse: Reuse{Messages: c.messages},
				Auth: PlainAuth, Credentials: staticCredentials("sluice", testPassword),
			})
			for b.Loop() {
				if err := s.Send(b.Context(), Envelope{testSender, testRecipient}, []byte(testMessage)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			if got := len(backend.receivedMessages()); got < b.N {
				b.Errorf("the server has %d messages of %d", got, b.N)
			}
		})
	}
}
