// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

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

// TestGreylisting is a server that takes its time with every reply, and wants the
// sender to come again.
func TestGreylisting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := time.Now()
		backend := &sink{rcpt: func(int) error {
			time.Sleep(4 * time.Minute) // virtual
			if time.Since(opened) < 46*time.Hour {
				return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "come again"}
			}
			return nil
		}}
		wire := newPipes()
		serve(t, wire, backend, nil)
		s := newSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial})
		attempts := 0
		for {
			attempts++
			err := s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole))
			if err == nil {
				break
			}
			want := &Failure{Kind: Temporary, Stage: StageRcpt, Code: 451, Enhanced: "4.7.1"}
			if diff := cmp.Diff(want, failureOf(t, err), noWords); diff != "" {
				t.Fatalf("failure (-want +got):\n%s", diff)
			}
			time.Sleep(15 * time.Minute)
		}
		got := backend.deliveries()
		if len(got) != 1 || got[0].Data != whole || time.Since(opened) < 46*time.Hour {
			t.Errorf("after %d attempts and %s the server has %+v", attempts, time.Since(opened), got)
		}
	})
}

// TestSlow is a server that says nothing, at each step.
func TestSlow(t *testing.T) {
	limits := Timeouts{Dial: time.Second, TLS: 2 * time.Second, Command: 3 * time.Second, Body: 4 * time.Second, Final: 5 * time.Second, Total: time.Minute}
	ca := newAuthority(t)
	certificate, today := ca.server(t, tomorrow(), "mail.example.org"), time.Now()
	for _, c := range []struct {
		step  string
		stage Stage
		takes time.Duration
		kind  Kind
	}{
		{"greeting", StageGreeting, limits.Command, Temporary},
		{"EHLO", StageHello, limits.Command, Temporary},
		{"STARTTLS", StageStartTLS, limits.Command, Temporary},
		{"TLS", StageTLS, limits.TLS, Temporary},
		{"EHLO2", StageHello, limits.Command, Temporary},
		{"AUTH", StageAuth, limits.Command, Temporary},
		{"MAIL", StageMail, limits.Command, Temporary},
		{"RCPT", StageRcpt, limits.Command, Temporary},
		{"DATA", StageData, limits.Command, Temporary},
		{".", StageFinal, limits.Final, Unknown},
	} {
		t.Run(c.step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &script{tls: certificate, replies: map[string]string{c.step: hang}}
				wire := newPipes()
				server.run(t, wire)
				s := newSender(t, Config{
					Host: "mail.example.org", Port: 587, CA: ca.pem, Dial: wire.dial, Timeouts: limits,
					Auth: PlainAuth, Credentials: known("sluice", password),
				})
				s.tls.Time = func() time.Time { return today } // virtual time begins in the year 2000
				began := time.Now()
				err := s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole))
				want := &Failure{Kind: c.kind, Stage: c.stage}
				if diff := cmp.Diff(want, failureOf(t, err), noWords); diff != "" {
					t.Errorf("failure (-want +got):\n%s\n%v", diff, err)
				}
				if took := time.Since(began); took != c.takes {
					t.Errorf("took %s, want %s", took, c.takes)
				}
				if whole := len(server.whole()); (whole == 1) != (c.step == ".") {
					t.Errorf("the server has %d messages", whole)
				}
			})
		})
	}
}

// TestSlowReader is a server that stops reading in the middle of the message.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &sink{}
		wire := newPipes()
		serve(t, wire, backend, func(s *smtp.Server) { s.Backend = stopReading{backend} })
		s := newSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial})
		began := time.Now()
		mail := "Subject: x\r\n\r\n" + strings.Repeat("a line of it\r\n", 10_000)
		err := s.Send(t.Context(), Envelope{sender, recipient}, []byte(mail))
		want := &Failure{Kind: Temporary, Stage: StageBody}
		if diff := cmp.Diff(want, failureOf(t, err), noWords); diff != "" {
			t.Errorf("failure (-want +got):\n%s", diff)
		}
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("took %s, want the five minutes for the body", took)
		}
		wire.open.Wait()
	})
}

// TestTotal is a server that is just fast enough at each step.
func TestTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(int) error {
			time.Sleep(4 * time.Minute)
			return nil
		}
		backend := &sink{mail: wait, rcpt: wait, final: wait}
		wire := newPipes()
		serve(t, wire, backend, nil)
		s := newSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial, Timeouts: Timeouts{Total: 10 * time.Minute}})
		began := time.Now()
		err := s.Send(t.Context(), Envelope{sender, recipient}, []byte(whole))
		want := &Failure{Kind: Unknown, Stage: StageFinal}
		if diff := cmp.Diff(want, failureOf(t, err), noWords); diff != "" {
			t.Errorf("failure (-want +got):\n%s", diff)
		}
		if took := time.Since(began); took != 10*time.Minute {
			t.Errorf("took %s, want 10m in all", took)
		}
		wire.open.Wait()
	})
}

// TestCalledOff ends the context at each step. The reply to a whole message is
// waited for a little, so that a restart makes no duplicate.
func TestCalledOff(t *testing.T) {
	stop := errors.New("the controller stops")
	for _, c := range []struct {
		step string
		late time.Duration // the server's answer comes so long after the end
		want *Failure
		took time.Duration // after the end
	}{
		{step: "greeting", want: &Failure{Kind: Temporary, Stage: StageGreeting}},
		{step: "MAIL", want: &Failure{Kind: Temporary, Stage: StageMail}},
		{step: "RCPT", want: &Failure{Kind: Temporary, Stage: StageRcpt}},
		{step: ".", want: &Failure{Kind: Unknown, Stage: StageFinal}, took: grace},
		{step: ".", late: time.Second, took: time.Second},
	} {
		t.Run(c.step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(stop) })
				wire := newPipes()
				if c.late > 0 {
					serve(t, wire, &sink{final: func(int) error {
						time.Sleep(time.Minute + c.late)
						return nil
					}}, nil)
				} else {
					(&script{replies: map[string]string{c.step: hang}}).run(t, wire)
				}
				s := newSender(t, Config{Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial})
				began := time.Now()
				err := s.Send(ctx, Envelope{sender, recipient}, []byte(whole))
				if diff := cmp.Diff(c.want, failureOf(t, err), noWords); diff != "" {
					t.Errorf("failure (-want +got):\n%s", diff)
				}
				if err != nil && !errors.Is(err, stop) {
					t.Errorf("%v does not say why", err)
				}
				if took := time.Since(began); took != time.Minute+c.took {
					t.Errorf("took %s, want %s", took, time.Minute+c.took)
				}
				if len(s.waiting) != 0 {
					t.Error("a connection that was called off waits for the next message")
				}
				err = s.Send(ctx, Envelope{sender, recipient}, []byte(whole))
				if want := (&Failure{Kind: Temporary, Stage: StageDial}); !cmp.Equal(want, failureOf(t, err), noWords) {
					t.Errorf("after the end: %v", err)
				}
			})
		})
	}
}

// stopReading takes the first bytes of a message, and then does nothing for hours.
type stopReading struct{ *sink }

func (s stopReading) NewSession(c *smtp.Conn) (smtp.Session, error) {
	session, err := s.sink.NewSession(c)
	return &stoppedSession{session}, err
}

type stoppedSession struct{ smtp.Session }

func (*stoppedSession) Data(r io.Reader) error {
	var some [100]byte
	_, _ = r.Read(some[:])
	time.Sleep(5 * time.Hour)
	return errors.New("gave up")
}
