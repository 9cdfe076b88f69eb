// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"
)

// The tests of this file run in virtual time, over connections in memory.

// TestGreylisting runs against a server with slow replies that requires retries.
func TestGreylisting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := time.Now()
		backend := &fakeBackend{rcpt: func(int) error {
			time.Sleep(4 * time.Minute) // virtual
			if time.Since(opened) < 46*time.Hour {
				return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "try again"}
			}
			return nil
		}}
		wire := newMemoryListener()
		serve(t, wire, backend, nil)
		s := newTestSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial})
		attempts := 0
		for {
			attempts++
			err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
			if err == nil {
				break
			}
			want := &Failure{Kind: TemporaryFailure, Stage: StageRcpt, Code: 451, Enhanced: "4.7.1"}
			if diff := cmp.Diff(want, requireFailure(t, err), ignoreText); diff != "" {
				t.Fatalf("failure (-want +got):\n%s", diff)
			}
			time.Sleep(15 * time.Minute)
		}
		got := backend.receivedMessages()
		if len(got) != 1 || got[0].Data != testMessage || time.Since(opened) < 46*time.Hour {
			t.Errorf("after %d attempts and %s the server has %+v", attempts, time.Since(opened), got)
		}
	})
}

// TestStepTimeouts runs against a server that sends no reply at one step.
func TestStepTimeouts(t *testing.T) {
	limits := Timeouts{
		Dial: time.Second, TLS: 2 * time.Second, Command: 3 * time.Second, Body: 4 * time.Second, Final: 5 * time.Second,
		Total: time.Minute,
	}
	ca := newTestCA(t)
	certificate, today := ca.serverConfig(t, tomorrow(), "mail.example.org"), time.Now()
	for _, c := range []struct {
		step  string
		stage Stage
		takes time.Duration
		kind  FailureKind
	}{
		{"greeting", StageGreeting, limits.Command, TemporaryFailure},
		{"EHLO", StageHello, limits.Command, TemporaryFailure},
		{"STARTTLS", StageStartTLS, limits.Command, TemporaryFailure},
		{"TLS", StageTLS, limits.TLS, TemporaryFailure},
		{"EHLO2", StageHello, limits.Command, TemporaryFailure},
		{"AUTH", StageAuth, limits.Command, TemporaryFailure},
		{"MAIL", StageMail, limits.Command, TemporaryFailure},
		{"RCPT", StageRcpt, limits.Command, TemporaryFailure},
		{"DATA", StageData, limits.Command, TemporaryFailure},
		{".", StageFinal, limits.Final, UnknownOutcome},
	} {
		t.Run(c.step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &scriptedServer{tls: certificate, replies: map[string]string{c.step: replyHang}}
				wire := newMemoryListener()
				server.run(t, wire)
				s := newTestSender(t, Config{
					Host: "mail.example.org", Port: 587, CA: ca.pem, Dial: wire.dial, Timeouts: limits,
					Auth: PlainAuth, Credentials: staticCredentials("sluice", testPassword),
				})
				s.tls.Time = func() time.Time { return today } // virtual time starts in the year 2000
				began := time.Now()
				err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
				want := &Failure{Kind: c.kind, Stage: c.stage}
				if diff := cmp.Diff(want, requireFailure(t, err), ignoreText); diff != "" {
					t.Errorf("failure (-want +got):\n%s\n%v", diff, err)
				}
				if took := time.Since(began); took != c.takes {
					t.Errorf("took %s, want %s", took, c.takes)
				}
				if whole := len(server.wholeMessages()); (whole == 1) != (c.step == ".") {
					t.Errorf("the server has %d messages", whole)
				}
			})
		})
	}
}

// TestServerStopsReading runs against a server that stops reading within the message.
func TestServerStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &fakeBackend{}
		wire := newMemoryListener()
		serve(t, wire, backend, func(s *smtp.Server) { s.Backend = stallingBackend{backend} })
		s := newTestSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial})
		began := time.Now()
		mail := "Subject: x\r\n\r\n" + strings.Repeat("a line of it\r\n", 10_000)
		err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(mail))
		want := &Failure{Kind: TemporaryFailure, Stage: StageBody}
		if diff := cmp.Diff(want, requireFailure(t, err), ignoreText); diff != "" {
			t.Errorf("failure (-want +got):\n%s", diff)
		}
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("took %s, want the timeout of the body, 5m", took)
		}
		wire.open.Wait()
	})
}

// TestTotalTimeout runs against a server that is slow at each step, within its timeout.
func TestTotalTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(int) error {
			time.Sleep(4 * time.Minute)
			return nil
		}
		backend := &fakeBackend{mail: wait, rcpt: wait, final: wait}
		wire := newMemoryListener()
		serve(t, wire, backend, nil)
		s := newTestSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial, Timeouts: Timeouts{Total: 10 * time.Minute}})
		began := time.Now()
		err := s.Send(t.Context(), Envelope{testSender, testRecipient}, []byte(testMessage))
		want := &Failure{Kind: UnknownOutcome, Stage: StageFinal}
		if diff := cmp.Diff(want, requireFailure(t, err), ignoreText); diff != "" {
			t.Errorf("failure (-want +got):\n%s", diff)
		}
		if took := time.Since(began); took != 10*time.Minute {
			t.Errorf("took %s, want 10m in all", took)
		}
		wire.open.Wait()
	})
}

// TestContextCanceledAtEachStep ends the context at each step. Send waits shortly for the reply to a
// complete message, so that a restart causes no duplicate.
func TestContextCanceledAtEachStep(t *testing.T) {
	stop := errors.New("the controller stops")
	for _, c := range []struct {
		step string
		late time.Duration // delay of the server's reply after the end
		want *Failure
		took time.Duration // after the end
	}{
		{step: "greeting", want: &Failure{Kind: TemporaryFailure, Stage: StageGreeting}},
		{step: "MAIL", want: &Failure{Kind: TemporaryFailure, Stage: StageMail}},
		{step: "RCPT", want: &Failure{Kind: TemporaryFailure, Stage: StageRcpt}},
		{step: ".", want: &Failure{Kind: UnknownOutcome, Stage: StageFinal}, took: cancelGracePeriod},
		{step: ".", late: time.Second, took: time.Second},
	} {
		t.Run(c.step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(stop) })
				wire := newMemoryListener()
				if c.late > 0 {
					serve(t, wire, &fakeBackend{final: func(int) error {
						time.Sleep(time.Minute + c.late)
						return nil
					}}, nil)
				} else {
					(&scriptedServer{replies: map[string]string{c.step: replyHang}}).run(t, wire)
				}
				s := newTestSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial})
				began := time.Now()
				err := s.Send(ctx, Envelope{testSender, testRecipient}, []byte(testMessage))
				if diff := cmp.Diff(c.want, requireFailure(t, err), ignoreText); diff != "" {
					t.Errorf("failure (-want +got):\n%s", diff)
				}
				if err != nil && !errors.Is(err, stop) {
					t.Errorf("%v does not wrap the cause", err)
				}
				if took := time.Since(began); took != time.Minute+c.took {
					t.Errorf("took %s, want %s", took, time.Minute+c.took)
				}
				if len(s.idle) != 0 {
					t.Error("a canceled connection is idle")
				}
				err = s.Send(ctx, Envelope{testSender, testRecipient}, []byte(testMessage))
				if want := (&Failure{Kind: TemporaryFailure, Stage: StageDial}); !cmp.Equal(want, requireFailure(t, err), ignoreText) {
					t.Errorf("after the end: %v", err)
				}
			})
		})
	}
}

// stallingBackend reads the first bytes of a message and then stalls for hours.
type stallingBackend struct{ *fakeBackend }

func (s stallingBackend) NewSession(c *smtp.Conn) (smtp.Session, error) {
	session, err := s.fakeBackend.NewSession(c)
	return &stallingSession{session}, err
}

type stallingSession struct{ smtp.Session }

func (*stallingSession) Data(r io.Reader) error {
	var some [100]byte
	_, _ = r.Read(some[:])
	time.Sleep(5 * time.Hour)
	return errors.New("gave up")
}
