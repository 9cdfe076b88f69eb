// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	testSender    = "bounces@example.org"
	testRecipient = "ada@example.org"
	testPassword  = "correct horse"
	testMessage   = "From: Sluice <sluice@example.org>\r\nTo: ada@example.org\r\nSubject: two days\r\n\r\n" +
		"The project ends.\r\n.\r\n.. and so on\r\n"
)

// requireFailure returns the *Failure, or nil; callers compare its text separately.
func requireFailure(t *testing.T, err error) *Failure {
	t.Helper()
	if err == nil {
		return nil
	}
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatalf("Send returned %T %v, want a *Failure", err, err)
	}
	if strings.Contains(err.Error(), testPassword) {
		t.Errorf("the error holds the password: %v", err)
	}
	return f
}

var ignoreText = cmp.Options{
	cmpopts.IgnoreUnexported(Failure{}),
	cmpopts.IgnoreFields(Failure{}, "Text", "Server"),
}

func replyWith(code int, status smtp.EnhancedCode, text string) func(int) error {
	return func(int) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: status, Message: text}
	}
}

func staticCredentials(user, secret string) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) { return user, secret, nil }
}

// TestSendFailures runs against a go-smtp server on a socket. Each case has the expected failure
// and the number of complete messages that the server received.
func TestSendFailures(t *testing.T) {
	ca := newTestCA(t)
	good := ca.serverConfig(t, tomorrow(), "mail.example.org")
	long := strings.Repeat("x", 300)

	cases := map[string]struct {
		sink   *fakeBackend
		server func(*smtp.Server)
		config func(*Config)
		from   string
		to     string
		mail   string

		want      *Failure
		wantText  string
		delivered int
		notDialed bool
	}{
		"success":               {delivered: 1},
		"implicit TLS":          {config: func(c *Config) { c.TLS = ImplicitTLS }, delivered: 1},
		"certificate for an IP": {config: func(c *Config) { c.ServerName = "" }, delivered: 1},
		"PLAIN only": {
			sink:      &fakeBackend{mechanisms: []string{"PLAIN"}},
			config:    func(c *Config) { c.Auth = PlainAuth },
			delivered: 1,
		},
		"LOGIN only": {
			sink:      &fakeBackend{mechanisms: []string{"LOGIN"}},
			config:    func(c *Config) { c.Auth = LoginAuth },
			delivered: 1,
		},
		"PLAIN at a server with LOGIN only": {
			sink:     &fakeBackend{mechanisms: []string{"LOGIN"}},
			config:   func(c *Config) { c.Auth = PlainAuth },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageAuth},
			wantText: "it offers: LOGIN",
		},
		"LOGIN at a server with PLAIN only": {
			sink:     &fakeBackend{mechanisms: []string{"PLAIN"}},
			config:   func(c *Config) { c.Auth = LoginAuth },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageAuth},
			wantText: "it offers: PLAIN",
		},
		"a server without AUTH": {
			config:   func(c *Config) { c.Auth = PlainAuth },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageAuth},
			wantText: "it offers: none",
		},
		"wrong password, PLAIN": {
			sink:     &fakeBackend{mechanisms: []string{"PLAIN"}, password: "another"},
			config:   func(c *Config) { c.Auth = PlainAuth },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageAuth, Code: 535, Enhanced: "5.7.8"},
			wantText: "bad password ***",
		},
		"wrong password, LOGIN": {
			sink:     &fakeBackend{mechanisms: []string{"LOGIN"}, password: "another"},
			config:   func(c *Config) { c.Auth = LoginAuth },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageAuth, Code: 535, Enhanced: "5.7.8"},
			wantText: "bad password ***",
		},
		"missing credentials": {
			config: func(c *Config) {
				c.Auth = PlainAuth
				c.Credentials = func(context.Context) (string, string, error) {
					return "", "", errors.New("secret mail/relay not found")
				}
			},
			want:      &Failure{Kind: ConfigurationFailure, Stage: StageCredentials},
			wantText:  "secret mail/relay not found",
			notDialed: true,
		},
		"temporarily unavailable credentials": {
			config: func(c *Config) {
				c.Auth = PlainAuth
				c.Credentials = func(context.Context) (string, string, error) {
					return "", "", fmt.Errorf("read secret: %w", &Failure{Kind: TemporaryFailure, Text: "the API server is unavailable"})
				}
			},
			want:      &Failure{Kind: TemporaryFailure, Stage: StageCredentials},
			notDialed: true,
		},
		"a password with a line break": {
			config: func(c *Config) {
				c.Auth = PlainAuth
				c.Credentials = staticCredentials("sluice", testPassword+"\n")
			},
			want:      &Failure{Kind: ConfigurationFailure, Stage: StageCredentials},
			wantText:  "line break",
			notDialed: true,
		},
		"no TLS offered": {
			server:   func(s *smtp.Server) { s.TLSConfig = nil },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageStartTLS},
			wantText: "does not offer STARTTLS",
		},
		"no TLS behind implicit TLS": {
			server:   func(s *smtp.Server) { s.TLSConfig = nil },
			config:   func(c *Config) { c.TLS = ImplicitTLS },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageTLS},
			wantText: "does not look like a TLS handshake",
		},
		"untrusted authority": {
			config:   func(c *Config) { c.CA = newTestCA(t).pem },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageTLS},
			wantText: "unknown authority",
		},
		"authority unknown to the system": {
			config:   func(c *Config) { c.CA = nil },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageTLS},
			wantText: "unknown authority",
		},
		"wrong host": {
			config:   func(c *Config) { c.ServerName = "mail.example.com" },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageTLS},
			wantText: "mail.example.com",
		},
		"expired certificate": {
			server:   func(s *smtp.Server) { s.TLSConfig = ca.serverConfig(t, time.Now().Add(-time.Hour), "mail.example.org") },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageTLS},
			wantText: "expired",
		},
		"expired certificate, implicit TLS": {
			server:   func(s *smtp.Server) { s.TLSConfig = ca.serverConfig(t, time.Now().Add(-time.Hour), "mail.example.org") },
			config:   func(c *Config) { c.TLS = ImplicitTLS },
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageTLS},
			wantText: "expired",
		},
		"old TLS": {
			server: func(s *smtp.Server) {
				s.TLSConfig = s.TLSConfig.Clone()
				s.TLSConfig.MinVersion, s.TLSConfig.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			},
			want: &Failure{Kind: ConfigurationFailure, Stage: StageTLS},
		},
		"client certificate required": {
			server: func(s *smtp.Server) {
				s.TLSConfig = s.TLSConfig.Clone()
				s.TLSConfig.ClientAuth = tls.RequireAnyClientCert
			},
			want:     &Failure{Kind: ConfigurationFailure, Stage: StageHello},
			wantText: "certificate required",
		},
		"greylisting": {
			sink: &fakeBackend{rcpt: replyWith(451, smtp.EnhancedCode{4, 7, 1}, "greylisted, try again")},
			want: &Failure{Kind: TemporaryFailure, Stage: StageRcpt, Code: 451, Enhanced: "4.7.1"},
		},
		"recipient refused": {
			sink: &fakeBackend{rcpt: replyWith(550, smtp.EnhancedCode{5, 1, 1}, "no such user")},
			want: &Failure{Kind: RecipientFailure, Stage: StageRcpt, Code: 550, Enhanced: "5.1.1"},
		},
		"mailbox full": {
			sink: &fakeBackend{rcpt: replyWith(552, smtp.EnhancedCode{5, 2, 2}, "full")},
			want: &Failure{Kind: TemporaryFailure, Stage: StageRcpt, Code: 552, Enhanced: "5.2.2"},
		},
		"relaying denied": {
			sink: &fakeBackend{rcpt: replyWith(554, smtp.EnhancedCode{5, 7, 1}, "relay access denied")},
			want: &Failure{Kind: DeniedFailure, Stage: StageRcpt, Code: 554, Enhanced: "5.7.1"},
		},
		"sender refused": {
			sink: &fakeBackend{mail: replyWith(550, smtp.EnhancedCode{5, 1, 8}, "no such domain")},
			want: &Failure{Kind: ConfigurationFailure, Stage: StageMail, Code: 550, Enhanced: "5.1.8"},
		},
		"authentication required": {
			sink: &fakeBackend{mail: replyWith(530, smtp.EnhancedCode{5, 7, 0}, "authenticate first")},
			want: &Failure{Kind: ConfigurationFailure, Stage: StageMail, Code: 530, Enhanced: "5.7.0"},
		},
		"out of disk": {
			sink: &fakeBackend{mail: replyWith(452, smtp.EnhancedCode{4, 3, 1}, "disk full")},
			want: &Failure{Kind: TemporaryFailure, Stage: StageMail, Code: 452, Enhanced: "4.3.1"},
		},
		"content refused": {
			sink: &fakeBackend{final: replyWith(554, smtp.EnhancedCode{5, 7, 1}, "looks like spam")},
			want: &Failure{Kind: RecipientFailure, Stage: StageFinal, Code: 554, Enhanced: "5.7.1"},
		},
		"unsigned content refused": {
			sink: &fakeBackend{final: replyWith(550, smtp.EnhancedCode{5, 7, 26}, "neither SPF nor DKIM")},
			want: &Failure{Kind: DeniedFailure, Stage: StageFinal, Code: 550, Enhanced: "5.7.26"},
		},
		"busy at the end": {
			sink: &fakeBackend{final: replyWith(451, smtp.EnhancedCode{4, 3, 0}, "try again")},
			want: &Failure{Kind: TemporaryFailure, Stage: StageFinal, Code: 451, Enhanced: "4.3.0"},
		},
		"an untrusted reply": {
			sink: &fakeBackend{rcpt: replyWith(550, smtp.EnhancedCode{5, 1, 1}, "no\x1b[2J such\x00 user \u202e"+strings.Repeat("ü", 400))},
			want: &Failure{Kind: RecipientFailure, Stage: StageRcpt, Code: 550, Enhanced: "5.1.1"},
		},
		"size beyond the announced limit": {
			server:   func(s *smtp.Server) { s.MaxMessageBytes = 100 },
			want:     &Failure{Kind: RecipientFailure, Stage: StageMail},
			wantText: "the server accepts 100",
		},
		"line too long": {
			mail:      "Subject: x\r\n\r\n" + strings.Repeat("x", maxMessageLineBytes+1) + "\r\n",
			want:      &Failure{Kind: RecipientFailure, Stage: StageMessage},
			wantText:  "line 3 has 999 bytes",
			notDialed: true,
		},
		"the longest line":     {mail: "Subject: x\r\n\r\n" + strings.Repeat("x", maxMessageLineBytes) + "\r\n", delivered: 1},
		"an incomplete header": {mail: "Subject: x\r\n", want: &Failure{Kind: RecipientFailure, Stage: StageMessage}, notDialed: true},
		"no message":           {mail: "\r\n", want: &Failure{Kind: RecipientFailure, Stage: StageMessage}, notDialed: true},
		"an incomplete last line": {
			mail: "Subject: x\r\n\r\nthis is incompl", want: &Failure{Kind: RecipientFailure, Stage: StageMessage}, notDialed: true,
		},
		"a smuggled message": {
			mail: "Subject: x\r\n\r\nx\n.\r\nMAIL FROM:<a@b>\r\n", want: &Failure{Kind: RecipientFailure, Stage: StageMessage},
			notDialed: true,
		},
		"a smuggled lone CR": {
			mail: "Subject: x\r\n\r\nx\r.\r\nx\r\n", want: &Failure{Kind: RecipientFailure, Stage: StageMessage}, notDialed: true,
		},
		"a NUL": {
			mail: "Subject: x\r\n\r\n\x00\r\n", want: &Failure{Kind: RecipientFailure, Stage: StageMessage}, notDialed: true,
		},
		"parameters injected": {
			to: "v@x.org> NOTIFY=NEVER ORCPT=rfc822;z@z", want: &Failure{Kind: RecipientFailure, Stage: StageAddress},
			notDialed: true,
		},
		"a command injected": {
			to: "v@x.org>\r\nRCPT TO:<w@x.org", want: &Failure{Kind: RecipientFailure, Stage: StageAddress}, notDialed: true,
		},
		"a NUL injected":        {to: "v\x00@x.org", want: &Failure{Kind: RecipientFailure, Stage: StageAddress}, notDialed: true},
		"address too long":      {to: long + "@x.org", want: &Failure{Kind: RecipientFailure, Stage: StageAddress}, notDialed: true},
		"no address":            {to: "<>", want: &Failure{Kind: RecipientFailure, Stage: StageAddress}, notDialed: true},
		"sender injection":      {from: "a@b.org> SIZE=1", want: &Failure{Kind: ConfigurationFailure, Stage: StageAddress}, notDialed: true},
		"non-ASCII everything":  {to: "jürgen.müller@bücher.example", mail: "Subject: Frist läuft ab 🚦\r\n\r\nGrüße\r\n", delivered: 1},
		"non-ASCII domain only": {to: "ada@bücher.example", server: func(s *smtp.Server) { s.EnableSMTPUTF8 = false }, delivered: 1},
		"non-ASCII address at an ASCII server": {
			to:       "jürgen@example.org",
			server:   func(s *smtp.Server) { s.EnableSMTPUTF8 = false },
			want:     &Failure{Kind: RecipientFailure, Stage: StageMail},
			wantText: "SMTPUTF8",
		},
		"non-ASCII sender at an ASCII server": {
			from:   "jürgen@example.org",
			server: func(s *smtp.Server) { s.EnableSMTPUTF8 = false },
			want:   &Failure{Kind: ConfigurationFailure, Stage: StageMail},
		},
		"non-ASCII header at an ASCII server": {
			mail:   "Subject: Frist läuft ab\r\n\r\nx\r\n",
			server: func(s *smtp.Server) { s.EnableSMTPUTF8 = false },
			want:   &Failure{Kind: RecipientFailure, Stage: StageMail},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, host, port := listen(t)
			config := Config{
				Host: host, Port: port, CA: ca.pem, ServerName: "mail.example.org", HELO: "sluice.example.org",
				Credentials: staticCredentials("sluice", testPassword), Timeouts: shortTimeouts(),
			}
			if c.config != nil {
				c.config(&config)
			}
			backend := c.sink
			if backend == nil {
				backend = &fakeBackend{}
			}
			backend.user = "sluice"
			if backend.password == "" {
				backend.password = testPassword
			}
			change := func(s *smtp.Server) {
				s.TLSConfig = good
				if c.server != nil {
					c.server(s)
				}
			}
			if config.TLS == ImplicitTLS {
				probe := &smtp.Server{}
				change(probe)
				if probe.TLSConfig != nil {
					listener = tls.NewListener(listener, probe.TLSConfig)
				}
			}
			serve(t, listener, backend, change)

			from, to, mail := valueOr(c.from, testSender), valueOr(c.to, testRecipient), valueOr(c.mail, testMessage)
			s := newTestSender(t, config)
			err := s.Send(t.Context(), Envelope{From: from, To: to}, []byte(mail))

			got := requireFailure(t, err)
			if diff := cmp.Diff(c.want, got, ignoreText); diff != "" {
				t.Errorf("failure (-want +got):\n%s\n%v", diff, err)
			}
			if got != nil && !strings.Contains(got.Text, c.wantText) {
				t.Errorf("text %q, want %q in it", got.Text, c.wantText)
			}
			if got != nil && (len(got.Text) > maxFailureText || strings.ContainsAny(got.Text, "\x00\x1b\r\n\u202e")) {
				t.Errorf("text %q is not a plain line", got.Text)
			}
			deliveries := backend.receivedMessages()
			if len(deliveries) != c.delivered {
				t.Errorf("the server has %d messages, want %d", len(deliveries), c.delivered)
			}
			for _, d := range deliveries {
				if d.Data != mail {
					t.Errorf("the server has %q, want %q", d.Data, mail)
				}
				if wantUTF8 := !isASCII(strings.SplitN(to, "@", 2)[0]) || !isASCII(mail); d.UTF8 != wantUTF8 {
					t.Errorf("SMTPUTF8 %v, want %v", d.UTF8, wantUTF8)
				}
				if d.Size != int64(len(mail)) {
					t.Errorf("SIZE=%d, want %d", d.Size, len(mail))
				}
			}
			if c.notDialed && backend.sessions > 0 {
				t.Error("the server was dialed")
			}
		})
	}
}

func valueOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func newTestSender(t testing.TB, config Config) *Sender {
	t.Helper()
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
