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

// TestMisbehavingServerReplies runs against a server that misbehaves more than go-smtp's can: at
// each step, over each kind of connection, in each way.
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
	ways := map[string]struct {
		reply string
		want  func(step string) FailureKind
		code  int
	}{
		"hangs up":                       {reply: replyDrop, want: lost},
		"hangs up within its reply":      {reply: "25" + replyDrop, want: lost},
		"hangs up before the line break": {reply: "250 " + replyDrop, want: lost},
		"hangs up between lines":         {reply: "250-x\r\n" + replyDrop, want: lost},
		"closes its service":             {reply: "421 4.3.2 shutting down", want: always(TemporaryFailure), code: 421},
		"says garbage":                   {reply: "\xff\xfe\x00garbage", want: lost},
		"says an empty line":             {reply: "", want: lost},
		"says a long line":               {reply: "250 " + strings.Repeat("x", 5000), want: lost},
		"never ends its line":            {reply: strings.Repeat("x", 2*maxReplyBytes) + replyDrop, want: lost},
		"never ends its reply":           {reply: strings.Repeat("250-more of it\r\n", maxReplyBytes/8) + replyDrop, want: lost},
		"answers out of step":            {reply: "354 go on", want: lost, code: 354},
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
			for way, w := range ways {
				if step == "TLS" && way != "hangs up" || step == "DATA" && w.code == 354 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", mode, step, way), func(t *testing.T) {
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

// TestInjectedRepliesBeforeTLS is CVE-2011-0411: somebody between puts replies before the
// handshake that would count as said within TLS.
func TestInjectedRepliesBeforeTLS(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	server := &scriptedServer{tls: ca.serverConfig(t, tomorrow(), "mail.example.org"), replies: map[string]string{
		"STARTTLS": "220 go on\r\n250-mail.example.org\r\n250 AUTH PLAIN",
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
		t.Errorf("the server heard %q", server.receivedLines())
	}
}

// TestPasswordRedactedFromEchoes is a server that repeats what it hears: the password never gets into
// the error.
func TestPasswordRedactedFromEchoes(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	as := credentials{"sluice", testPassword}
	for _, echo := range []string{"535 " + as.encodedSecrets()[0], "535 5.7.8 " + testPassword, as.encodedSecrets()[0], "AUTH " + as.encodedSecrets()[1], "334 " + testPassword} {
		for _, mode := range []AuthMode{PlainAuth, LoginAuth} {
			server := &scriptedServer{tls: ca.serverConfig(t, tomorrow(), "mail.example.org"), replies: map[string]string{"AUTH": echo}}
			wire := newMemoryListener()
			server.run(t, wire)
			s := newTestSender(t, Config{
				Host: "mail.example.org", Port: 587, CA: ca.pem, Dial: wire.dial, Timeouts: shortTimeouts(),
				Auth: mode, Credentials: staticCredentials("sluice", testPassword),
			})
			f := requireFailure(t, s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage)))
			for _, secret := range as.encodedSecrets() {
				for err := error(f); err != nil; err = errors.Unwrap(err) {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("%s: %q is in %q", mode, secret, err)
					}
				}
			}
		}
	}
}

// cuttingConn is a connection that ends after so many bytes.
type cuttingConn struct {
	net.Conn
	out, in int  // how many bytes pass; negative means all
	silent  bool // what does not pass is swallowed, as by a buffer of the kernel

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

// TestConnectionCutAtEveryByte ends the connection after every single byte of a conversation
// with a go-smtp server, in both directions. The server has all of the message or
// nothing, and the failure says which, as far as it can be known.
func TestConnectionCutAtEveryByte(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name    string
		unknown bool // the end of the message may pass without a reply
		cut     func(at int) *cuttingConn
	}{
		{"going out, noticed", false, func(at int) *cuttingConn { return &cuttingConn{out: at, in: -1} }},
		{"going out, unnoticed", true, func(at int) *cuttingConn { return &cuttingConn{out: at, in: -1, silent: true} }},
		{"coming in", true, func(at int) *cuttingConn { return &cuttingConn{out: -1, in: at} }},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			seen := map[FailureKind]int{}
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
						c := way.cut(at)
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
						t.Fatalf("cut at %d: a lost message passed for a sent one", at)
					}
					if seen[TemporaryFailure] == 0 || (seen[UnknownOutcome] > 0) != way.unknown {
						t.Errorf("seen %v before the first success", seen)
					}
					return
				}
				f := requireFailure(t, err)
				seen[f.Kind]++
				switch {
				case f.Kind != TemporaryFailure && f.Kind != UnknownOutcome:
					t.Fatalf("cut at %d: %v", at, err)
				case f.Kind == TemporaryFailure && len(got) != 0:
					t.Fatalf("cut at %d: a delivered message is said to be not taken: %v", at, err)
				}
			}
			t.Error("no cut was late enough to leave the message alone")
		})
	}
}

// TestConnectionRefused is a port at which nothing listens, and a name that is none.
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
		t.Errorf("the cause of %v is not to be found", err)
	}
}

// TestUnresponsiveHost is a port behind which nobody answers.
func TestUnresponsiveHost(t *testing.T) {
	t.Parallel()
	_, host, port := listen(t) // and never accepted from
	for _, mode := range []TLSMode{StartTLS, ImplicitTLS, NoTLS} {
		s := newTestSender(t, Config{Host: host, Port: port, TLS: mode, Timeouts: Timeouts{TLS: 20 * time.Millisecond, Command: 20 * time.Millisecond}})
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

// TestEndlessReply is a server that never stops: little of it is listened to.
func TestEndlessReply(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"220-and so on\r\n", "220 x\r\n250-and so on\r\n250-", strings.Repeat("x", 1000), "\r\n"} {
		heard := make(chan int, 1)
		s := newTestSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Timeouts: shortTimeouts(), Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			go func() {
				total := 0
				for {
					n, err := io.WriteString(far, words)
					total += n
					if err != nil {
						heard <- total
						return
					}
				}
			}()
			return near, nil
		}})
		f := requireFailure(t, s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage)))
		if f == nil || f.Kind != TemporaryFailure {
			t.Errorf("%q: %v", words, f)
		}
		if total := <-heard; total > 3*maxReplyBytes {
			t.Errorf("%q: %d bytes were listened to", words, total)
		}
	}
}

// TestLocalhostResolvesToRemoteHost is a resolver that says localhost is another machine.
func TestLocalhostResolvesToRemoteHost(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	s := newTestSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Timeouts: Timeouts{Command: time.Second}, Dial: func(context.Context, string, string) (net.Conn, error) {
		return &remoteConn{near}, nil
	}})
	want := &Failure{Kind: ConfigurationFailure, Stage: StageDial}
	err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
	if diff := cmp.Diff(want, requireFailure(t, err), ignoreText); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
}

type remoteConn struct{ net.Conn }

func (*remoteConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 25} }

var _ net.Listener = (*memoryListener)(nil)
