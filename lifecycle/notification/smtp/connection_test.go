// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMisbehavingServerReplies runs against a server with replies that go-smtp's server cannot
// send: at each step, with each TLS mode, in each way.
func TestMisbehavingServerReplies(t *testing.T) {
	ca := newTestCA(t)
	certificate := ca.serverConfig(t, tomorrow(), "mail.example.org")
	stages := map[string]Stage{
		"greeting": StageGreeting, "EHLO": StageHello, "STARTTLS": StageStartTLS, "TLS": StageTLS, "EHLO2": StageHello,
		"AUTH": StageAuth, "MAIL": StageMail, "RCPT": StageRcpt, "DATA": StageData, ".": StageFinal,
	}
	lost := func(step string) FailureKind {
		if step == "." {
			return UnknownOutcome
		}
		return TemporaryFailure
	}
	always := func(kind FailureKind) func(string) FailureKind { return func(string) FailureKind { return kind } }
	behaviors := map[string]struct {
		reply string
		want  func(step string) FailureKind
		code  int
	}{
		"closes the connection":        {reply: replyDrop, want: lost},
		"closes within its reply":      {reply: "25" + replyDrop, want: lost},
		"closes before the line break": {reply: "250 " + replyDrop, want: lost},
		"closes between lines":         {reply: "250-x\r\n" + replyDrop, want: lost},
		"shuts down":                   {reply: "421 4.3.2 shutting down", want: always(TemporaryFailure), code: 421},
		"sends garbage":                {reply: "\xff\xfe\x00garbage", want: lost},
		"sends an empty line":          {reply: "", want: lost},
		"sends a long line":            {reply: "250 " + strings.Repeat("x", 5000), want: lost},
		"never ends its line":          {reply: strings.Repeat("x", 2*maxReplyBytes) + replyDrop, want: lost},
		"never ends its reply":         {reply: strings.Repeat("250-more of it\r\n", maxReplyBytes/8) + replyDrop, want: lost},
		"replies out of step":          {reply: "354 continue", want: lost, code: 354},
	}
	for mode, config := range map[TLSMode]Config{
		NoTLS:       {},
		StartTLS:    {Auth: PlainAuth},
		ImplicitTLS: {Auth: LoginAuth},
	} {
		for _, step := range smtpSteps() {
			inTLS := step == "STARTTLS" || step == "EHLO2"
			if mode != StartTLS && inTLS || mode == NoTLS && (step == "TLS" || step == "AUTH") {
				continue
			}
			for behavior, w := range behaviors {
				if step == "TLS" && behavior != "closes the connection" || step == "DATA" && w.code == 354 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", mode, step, behavior), func(t *testing.T) {
					t.Parallel()
					server := &scriptedServer{replies: map[string]string{step: w.reply}, implicitTLS: mode == ImplicitTLS}
					if mode != NoTLS {
						server.tls = certificate
					}
					wire := newMemoryListener()
					server.run(t, wire)
					config := config
					config.Host, config.Port, config.TLS, config.Dial = "localhost", 25, mode, wire.dial
					config.CA, config.ServerName = ca.pem, "mail.example.org"
					config.Credentials, config.Timeouts = staticCredentials("sluice", testPassword), shortTimeouts()

					err := newTestSender(t, config).Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
					got := requireFailure(t, err)
					want := &Failure{Kind: w.want(step), Stage: stages[step], Code: w.code}
					if w.code == 421 {
						want.Enhanced = "4.3.2"
					}
					if step == "AUTH" && w.code == 354 {
						want.Code = 354
					}
					if diff := cmp.Diff(want, got, ignoreText); diff != "" {
						t.Errorf("failure (-want +got):\n%s\n%v", diff, err)
					}
					var delivered []string
					if step == "." {
						delivered = []string{testMessage}
					}
					wire.open.Wait()
					if diff := cmp.Diff(delivered, server.wholeMessages()); diff != "" {
						t.Errorf("messages (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// TestInjectedRepliesBeforeTLS covers CVE-2011-0411: an attacker injects replies before the
// handshake that would count as received within TLS.
func TestInjectedRepliesBeforeTLS(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	server := &scriptedServer{tls: ca.serverConfig(t, tomorrow(), "mail.example.org"), replies: map[string]string{
		"STARTTLS": "220 ready\r\n250-mail.example.org\r\n250 AUTH PLAIN",
	}}
	wire := newMemoryListener()
	server.run(t, wire)
	s := newTestSender(t, Config{
		Host: "mail.example.org", Port: 587, CA: ca.pem, Dial: wire.dial, Timeouts: shortTimeouts(),
		Auth: PlainAuth, Credentials: staticCredentials("sluice", testPassword),
	})
	got := requireFailure(t, s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage)))
	want := &Failure{Kind: ConfigurationFailure, Stage: StageStartTLS}
	if diff := cmp.Diff(want, got, ignoreText); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
	if strings.Contains(server.receivedLines(), "AUTH") {
		t.Errorf("the server received %q", server.receivedLines())
	}
}

// TestPasswordRedactedFromEchoes runs against a server that echoes commands: no error contains the
// password.
func TestPasswordRedactedFromEchoes(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	creds := credentials{"sluice", testPassword}
	secrets := creds.encodedSecrets()
	for _, echo := range []string{"535 " + secrets[0], "535 5.7.8 " + testPassword, secrets[0], "AUTH " + secrets[1], "334 " + testPassword} {
		for _, mode := range []AuthMode{PlainAuth, LoginAuth} {
			server := &scriptedServer{tls: ca.serverConfig(t, tomorrow(), "mail.example.org"), replies: map[string]string{"AUTH": echo}}
			wire := newMemoryListener()
			server.run(t, wire)
			s := newTestSender(t, Config{
				Host: "mail.example.org", Port: 587, CA: ca.pem, Dial: wire.dial, Timeouts: shortTimeouts(),
				Auth: mode, Credentials: staticCredentials("sluice", testPassword),
			})
			f := requireFailure(t, s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage)))
			for _, secret := range secrets {
				for err := error(f); err != nil; err = errors.Unwrap(err) {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("%s: %q is in %q", mode, secret, err)
					}
				}
			}
		}
	}
}

// TestHelloName: the client introduces itself with its configured name before and after STARTTLS.
func TestHelloName(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	server := &scriptedServer{tls: ca.serverConfig(t, tomorrow(), "mail.example.org")}
	wire := newMemoryListener()
	server.run(t, wire)
	s := newTestSender(t, Config{
		Host: "mail.example.org", Port: 587, CA: ca.pem, Dial: wire.dial, Timeouts: shortTimeouts(), HELO: "sluice.example.org",
	})
	if err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(server.receivedLines(), "EHLO sluice.example.org"); n != 2 {
		t.Errorf("%d EHLO with the name, want 2:\n%s", n, server.receivedLines())
	}
}

// cuttingConn is a connection that ends after a number of bytes.
type cuttingConn struct {
	net.Conn
	out, in int  // how many bytes pass; negative means all
	silent  bool // drop further bytes without an error, as a buffer of the kernel does

	mu sync.Mutex
}

var errCut = errors.New("connection reset by peer")

func (c *cuttingConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out < 0 || len(b) <= c.out {
		if c.out >= 0 {
			c.out -= len(b)
		}
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:c.out])
	c.out = 0
	c.Close()
	if c.silent {
		return len(b), nil
	}
	return n, errCut
}

func (c *cuttingConn) Read(b []byte) (int, error) {
	if c.in == 0 {
		c.Close()
		return 0, errCut
	}
	if c.in > 0 {
		b = b[:min(len(b), c.in)]
	}
	n, err := c.Conn.Read(b)
	if c.in > 0 {
		c.in -= n
	}
	return n, err
}

// TestConnectionCutAtEveryByte ends the connection after every byte of a session with a go-smtp
// server, in both directions. The server has the complete message or nothing, and the failure says
// which, as far as the client can know.
func TestConnectionCutAtEveryByte(t *testing.T) {
	t.Parallel()
	for _, direction := range []struct {
		name    string
		unknown bool // the final dot may pass without a reply
		cut     func(at int) *cuttingConn
	}{
		{"outgoing, with an error", false, func(at int) *cuttingConn { return &cuttingConn{out: at, in: -1} }},
		{"outgoing, without an error", true, func(at int) *cuttingConn { return &cuttingConn{out: at, in: -1, silent: true} }},
		{"incoming", true, func(at int) *cuttingConn { return &cuttingConn{out: -1, in: at} }},
	} {
		t.Run(direction.name, func(t *testing.T) {
			t.Parallel()
			kinds := map[FailureKind]int{}
			for at := range 5000 {
				backend, wire := &fakeBackend{}, newMemoryListener()
				serve(t, wire, backend, nil)
				s := newTestSender(t, Config{
					Host: "localhost", Port: 25, TLS: NoTLS, HELO: "sluice.example.org", Timeouts: shortTimeouts(),
					Reuse: Reuse{Messages: 1},
					Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						conn, err := wire.dial(ctx, network, address)
						if err != nil {
							return nil, err
						}
						c := direction.cut(at)
						c.Conn = conn
						return c, nil
					},
				})
				err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
				s.Close()
				wire.open.Wait()
				got := backend.receivedMessages()
				if len(got) > 1 || len(got) == 1 && got[0].Data != testMessage {
					t.Fatalf("cut at %d: the server has %+v", at, got)
				}
				if err == nil {
					if len(got) != 1 {
						t.Fatalf("cut at %d: a lost message counts as sent", at)
					}
					if kinds[TemporaryFailure] == 0 || (kinds[UnknownOutcome] > 0) != direction.unknown {
						t.Errorf("kinds %v before the first success", kinds)
					}
					return
				}
				f := requireFailure(t, err)
				kinds[f.Kind]++
				switch {
				case f.Kind != TemporaryFailure && f.Kind != UnknownOutcome:
					t.Fatalf("cut at %d: %v", at, err)
				case f.Kind == TemporaryFailure && len(got) != 0:
					t.Fatalf("cut at %d: a delivered message counts as not accepted: %v", at, err)
				}
			}
			t.Error("no cut was late enough for success")
		})
	}
}

// TestConnectionRefused dials a port without listener, and a name that does not resolve.
func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	listener, host, port := listen(t)
	listener.Close()
	for name, config := range map[string]Config{
		"refused": {Host: host, Port: port},
		"no name": {Host: "mail.invalid", Port: 25, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "mail.invalid", IsNotFound: true}
		}},
	} {
		config.Timeouts = shortTimeouts()
		err := newTestSender(t, config).Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
		want := &Failure{Kind: TemporaryFailure, Stage: StageDial}
		if diff := cmp.Diff(want, requireFailure(t, err), ignoreText); diff != "" {
			t.Errorf("%s: failure (-want +got):\n%s", name, diff)
		}
	}
	var dns *net.DNSError
	s := newTestSender(t, Config{Host: "mail.invalid", Port: 25, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "mail.invalid"}
	}})
	if err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage)); !errors.As(err, &dns) {
		t.Errorf("%v does not wrap its cause", err)
	}
}

// TestUnresponsiveHost dials a port that accepts no connection.
func TestUnresponsiveHost(t *testing.T) {
	t.Parallel()
	_, host, port := listen(t) // never accepts
	for _, mode := range []TLSMode{StartTLS, ImplicitTLS, NoTLS} {
		s := newTestSender(
			t, Config{Host: host, Port: port, TLS: mode, Timeouts: Timeouts{TLS: 20 * time.Millisecond, Command: 20 * time.Millisecond}},
		)
		want := &Failure{Kind: TemporaryFailure, Stage: StageGreeting}
		if mode == ImplicitTLS {
			want.Stage = StageTLS
		}
		err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
		if diff := cmp.Diff(want, requireFailure(t, err), ignoreText); diff != "" {
			t.Errorf("%s: failure (-want +got):\n%s", mode, diff)
		}
	}
}

// TestEndlessReply runs against a server with an endless reply: the client stops reading.
func TestEndlessReply(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"220-and so on\r\n", "220 x\r\n250-and so on\r\n250-", strings.Repeat("x", 1000), "\r\n"} {
		written := make(chan int, 1)
		s := newTestSender(
			t,
			Config{
				Host:     "localhost",
				Port:     25,
				TLS:      NoTLS,
				Timeouts: shortTimeouts(),
				Dial: func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					go func() { _, _ = io.Copy(io.Discard, far) }()
					go func() {
						total := 0
						for {
							n, err := io.WriteString(far, reply)
							total += n
							if err != nil {
								written <- total
								return
							}
						}
					}()
					return near, nil
				},
			},
		)
		f := requireFailure(t, s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage)))
		if f == nil || f.Kind != TemporaryFailure {
			t.Errorf("%q: %v", reply, f)
		}
		if total := <-written; total > 3*maxReplyBytes {
			t.Errorf("%q: %d bytes were read", reply, total)
		}
	}
}

// TestLocalhostResolvesToRemoteHost: a resolver that maps localhost to another machine causes a failure.
func TestLocalhostResolvesToRemoteHost(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	s := newTestSender(
		t,
		Config{
			Host:     "localhost",
			Port:     25,
			TLS:      NoTLS,
			Timeouts: Timeouts{Command: time.Minute},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return &remoteConn{near}, nil
			},
		},
	)
	want := &Failure{Kind: ConfigurationFailure, Stage: StageDial}
	err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
	if diff := cmp.Diff(want, requireFailure(t, err), ignoreText); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
}

type remoteConn struct{ net.Conn }

func (*remoteConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 25} }

var _ net.Listener = (*memoryListener)(nil)
