// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

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

// TestReplies runs against a server that misbehaves more than go-smtp's can: at
// each step, over each kind of connection, in each way.
func TestReplies(t *testing.T) {
	ca := newAuthority(t)
	certificate := ca.server(t, tomorrow(), "mail.example.org")
	stages := map[string]Stage{
		"greeting": StageGreeting, "EHLO": StageHello, "STARTTLS": StageStartTLS, "TLS": StageTLS, "EHLO2": StageHello,
		"AUTH": StageAuth, "MAIL": StageMail, "RCPT": StageRcpt, "DATA": StageData, ".": StageFinal,
	}
	lost := func(step string) Kind {
		if step == "." {
			return Unknown
		}
		return Temporary
	}
	always := func(kind Kind) func(string) Kind { return func(string) Kind { return kind } }
	ways := map[string]struct {
		reply string
		want  func(step string) Kind
		code  int
	}{
		"hangs up":                       {reply: drop, want: lost},
		"hangs up within its reply":      {reply: "25" + drop, want: lost},
		"hangs up before the line break": {reply: "250 " + drop, want: lost},
		"hangs up between lines":         {reply: "250-x\r\n" + drop, want: lost},
		"closes its service":             {reply: "421 4.3.2 shutting down", want: always(Temporary), code: 421},
		"says garbage":                   {reply: "\xff\xfe\x00garbage", want: lost},
		"says an empty line":             {reply: "", want: lost},
		"says a long line":               {reply: "250 " + strings.Repeat("x", 5000), want: lost},
		"never ends its line":            {reply: strings.Repeat("x", 2*maxReply) + drop, want: lost},
		"never ends its reply":           {reply: strings.Repeat("250-more of it\r\n", maxReply/8) + drop, want: lost},
		"answers out of step":            {reply: "354 go on", want: lost, code: 354},
	}
	for mode, config := range map[TLSMode]Config{
		NoTLS:       {},
		StartTLS:    {Auth: PlainAuth},
		ImplicitTLS: {Auth: LoginAuth},
	} {
		for _, step := range steps() {
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
					server := &script{replies: map[string]string{step: w.reply}, implied: mode == ImplicitTLS}
					if mode != NoTLS {
						server.tls = certificate
					}
					wire := newPipes()
					server.run(t, wire)
					config := config
					config.Host, config.Port, config.TLS, config.Dial = "localhost", 25, mode, wire.dial
					config.CA, config.ServerName = ca.pem, "mail.example.org"
					config.Credentials, config.Timeouts = known("sluice", password), short()

					err := newSender(t, config).Send(t.Context(), Envelope{sender, recipient}, []byte(whole))
					got := failureOf(t, err)
					want := &Failure{Kind: w.want(step), Stage: stages[step], Code: w.code}
					if w.code == 421 {
						want.Enhanced = "4.3.2"
					}
					if step == "AUTH" && w.code == 354 {
						want.Code = 354
					}
					if diff := cmp.Diff(want, got, noWords); diff != "" {
						t.Errorf("failure (-want +got):\n%s\n%v", diff, err)
					}
					var delivered []string
					if step == "." {
						delivered = []string{whole}
					}
					wire.open.Wait()
					if diff := cmp.Diff(delivered, server.whole()); diff != "" {
						t.Errorf("messages (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// TestWordsBeforeTLS is CVE-2011-0411: somebody between puts replies before the
// handshake that would count as said within TLS.
func TestWordsBeforeTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server := &script{tls: ca.server(t, tomorrow(), "mail.example.org"), replies: map[string]string{
		"STARTTLS": "220 go on\r\n250-mail.example.org\r\n250 AUTH PLAIN",
	}}
	wire := newPipes()
	server.run(t, wire)
	s := newSender(t, Config{
		Host: "mail.example.org", Port: 587, CA: ca.pem, Dial: wire.dial, Timeouts: short(),
		Auth: PlainAuth, Credentials: known("sluice", password),
	})
	got := failureOf(t, s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole)))
	want := &Failure{Kind: Configuration, Stage: StageStartTLS}
	if diff := cmp.Diff(want, got, noWords); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
	if strings.Contains(server.lines(), "AUTH") {
		t.Errorf("the server heard %q", server.lines())
	}
}

// TestEchoes is a server that repeats what it hears: the password never gets into
// the error.
func TestEchoes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	as := credentials{"sluice", password}
	for _, echo := range []string{"535 " + as.secrets()[0], "535 5.7.8 " + password, as.secrets()[0], "AUTH " + as.secrets()[1], "334 " + password} {
		for _, mode := range []AuthMode{PlainAuth, LoginAuth} {
			server := &script{tls: ca.server(t, tomorrow(), "mail.example.org"), replies: map[string]string{"AUTH": echo}}
			wire := newPipes()
			server.run(t, wire)
			s := newSender(t, Config{
				Host: "mail.example.org", Port: 587, CA: ca.pem, Dial: wire.dial, Timeouts: short(),
				Auth: mode, Credentials: known("sluice", password),
			})
			f := failureOf(t, s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole)))
			for _, secret := range as.secrets() {
				for err := error(f); err != nil; err = errors.Unwrap(err) {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("%s: %q is in %q", mode, secret, err)
					}
				}
			}
		}
	}
}

// cut is a connection that ends after so many bytes.
type cut struct {
	net.Conn
	out, in int  // how many bytes pass; negative means all
	silent  bool // what does not pass is swallowed, as by a buffer of the kernel

	mu sync.Mutex
}

var errCut = errors.New("connection reset by peer")

func (c *cut) Write(b []byte) (int, error) {
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

func (c *cut) Read(b []byte) (int, error) {
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

// TestCutAnywhere ends the connection after every single byte of a conversation
// with a go-smtp server, in both directions. The server has all of the message or
// nothing, and the failure says which, as far as it can be known.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name    string
		unknown bool // the end of the message may pass without a reply
		cut     func(at int) *cut
	}{
		{"going out, noticed", false, func(at int) *cut { return &cut{out: at, in: -1} }},
		{"going out, unnoticed", true, func(at int) *cut { return &cut{out: at, in: -1, silent: true} }},
		{"coming in", true, func(at int) *cut { return &cut{out: -1, in: at} }},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			seen := map[Kind]int{}
			for at := range 5000 {
				backend, wire := &sink{}, newPipes()
				serve(t, wire, backend, nil)
				s := newSender(t, Config{
					Host: "localhost", Port: 25, TLS: NoTLS, HELO: "sluice.example.org", Timeouts: short(),
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
				err := s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole))
				s.Close()
				wire.open.Wait()
				got := backend.deliveries()
				if len(got) > 1 || len(got) == 1 && got[0].Data != whole {
					t.Fatalf("cut at %d: the server has %+v", at, got)
				}
				if err == nil {
					if len(got) != 1 {
						t.Fatalf("cut at %d: a lost message passed for a sent one", at)
					}
					if seen[Temporary] == 0 || (seen[Unknown] > 0) != way.unknown {
						t.Errorf("seen %v before the first success", seen)
					}
					return
				}
				f := failureOf(t, err)
				seen[f.Kind]++
				switch {
				case f.Kind != Temporary && f.Kind != Unknown:
					t.Fatalf("cut at %d: %v", at, err)
				case f.Kind == Temporary && len(got) != 0:
					t.Fatalf("cut at %d: a delivered message is said to be not taken: %v", at, err)
				}
			}
			t.Error("no cut was late enough to leave the message alone")
		})
	}
}

// TestNobodyThere is a port at which nothing listens, and a name that is none.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	listener, host, port := listen(t)
	listener.Close()
	for name, config := range map[string]Config{
		"refused": {Host: host, Port: port},
		"no name": {Host: "mail.invalid", Port: 25, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "mail.invalid", IsNotFound: true}
		}},
	} {
		config.Timeouts = short()
		err := newSender(t, config).Send(t.Context(), Envelope{sender, recipient}, []byte(whole))
		want := &Failure{Kind: Temporary, Stage: StageDial}
		if diff := cmp.Diff(want, failureOf(t, err), noWords); diff != "" {
			t.Errorf("%s: failure (-want +got):\n%s", name, diff)
		}
	}
	var dns *net.DNSError
	s := newSender(t, Config{Host: "mail.invalid", Port: 25, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "mail.invalid"}
	}})
	if err := s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole)); !errors.As(err, &dns) {
		t.Errorf("the cause of %v is not to be found", err)
	}
}

// TestBlackhole is a port behind which nobody answers.
func TestBlackhole(t *testing.T) {
	t.Parallel()
	_, host, port := listen(t) // and never accepted from
	for _, mode := range []TLSMode{StartTLS, ImplicitTLS, NoTLS} {
		s := newSender(t, Config{Host: host, Port: port, TLS: mode, Timeouts: Timeouts{TLS: 20 * time.Millisecond, Command: 20 * time.Millisecond}})
		want := &Failure{Kind: Temporary, Stage: StageGreeting}
		if mode == ImplicitTLS {
			want.Stage = StageTLS
		}
		err := s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole))
		if diff := cmp.Diff(want, failureOf(t, err), noWords); diff != "" {
			t.Errorf("%s: failure (-want +got):\n%s", mode, diff)
		}
	}
}

// TestEndless is a server that never stops: little of it is listened to.
func TestEndless(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"220-and so on\r\n", "220 x\r\n250-and so on\r\n250-", strings.Repeat("x", 1000), "\r\n"} {
		heard := make(chan int, 1)
		s := newSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Timeouts: short(), Dial: func(context.Context, string, string) (net.Conn, error) {
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
		f := failureOf(t, s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole)))
		if f == nil || f.Kind != Temporary {
			t.Errorf("%q: %v", words, f)
		}
		if total := <-heard; total > 3*maxReply {
			t.Errorf("%q: %d bytes were listened to", words, total)
		}
	}
}

// TestLocalhostElsewhere is a resolver that says localhost is another machine.
func TestLocalhostElsewhere(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	s := newSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Timeouts: Timeouts{Command: time.Second}, Dial: func(context.Context, string, string) (net.Conn, error) {
		return &elsewhere{near}, nil
	}})
	want := &Failure{Kind: Configuration, Stage: StageDial}
	err := s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole))
	if diff := cmp.Diff(want, failureOf(t, err), noWords); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
}

type elsewhere struct{ net.Conn }

func (*elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 25} }

var _ net.Listener = (*pipes)(nil)
