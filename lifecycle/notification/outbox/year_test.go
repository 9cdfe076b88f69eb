// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
)

// hostileServer replies to mails of a year.
type hostileServer struct {
	w *testEnv
	// down is when the server is unreachable; greylisted holds the last refusal by address.
	downFrom, downUntil time.Time
	greylisted          map[string]time.Time
}

// The recipients who never receive mail, or who receive it twice, by the local part.
var hostileRecipients = []v1alpha1.EmailAddress{
	"bounces@example.org", "full@example.org", "closes@example.org", "silent@example.org",
	"denied@example.com", "denied@example.net", "denied@example.info",
}

func (s *hostileServer) respond(to string, _ int) (error, bool) {
	now := time.Now()
	switch local, _, _ := strings.Cut(to, "@"); {
	case s.w.fingerprint == "wrong password":
		return newFailure(ConfigurationFailure, "535 5.7.8 wrong password"), false
	case now.After(s.downFrom) && now.Before(s.downUntil):
		return newFailure(ServerFailure, "connection refused"), false
	case local == "bounces":
		return newFailure(RecipientFailure, "550 5.1.1 no such user"), false
	case local == "full":
		return newFailure(TemporaryFailure, "452 4.2.2 mailbox full"), false
	case local == "closes":
		return &Failure{Kind: ServerFailure, AfterRecipient: true, Err: errors.New("421 4.7.0 closing")}, false
	case local == "silent":
		return newFailure(UnknownOutcome, "no reply"), true
	case local == "denied":
		return relayDenial(to), false
	case local == "grey":
		if at, ok := s.greylisted[to]; !ok || now.Sub(at) < 4*time.Minute {
			s.greylisted[to] = now
			return newFailure(TemporaryFailure, "451 4.7.1 greylisted"), false
		}
		delete(s.greylisted, to) // the next mail is refused again
	}
	return nil, true
}

// Invariant 6: in a year with bouncing, full, greylisting, denied and silent recipients, an outage, a
// changed password and restarts, each other mail is sent once, and soon; mail pauses for the
// password only.
func TestYearOfMail(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		server := &hostileServer{w: w, greylisted: map[string]time.Time{}}
		w.respond = server.respond
		retention := &Retention{Client: w.processes[0].Client, Clock: w.clock}
		good := []v1alpha1.EmailAddress{"anna@example.org", "ben@example.org", "grey@example.org", "carol@cs.example.org", "grey@example.edu"}
		want, recorded := map[string]int{}, map[string]time.Time{}
		pauses := 0
		for day := range 365 {
			switch day {
			case 100:
				server.downFrom, server.downUntil = time.Now(), time.Now().Add(3*24*time.Hour)
			case 200:
				w.fingerprint = "wrong password"
			case 202:
				w.fingerprint = "second"
			}
			if day%30 == 7 {
				w.restart()
				retention.Client = w.processes[0].Client
			}
			name := fmt.Sprintf("day-%03d", day)
			want[name], recorded[name] = 1, time.Now()
			w.recordNotice(name, toRecipient(good[day%len(good)]))
			if day%6 == 0 {
				w.recordNotice(fmt.Sprintf("hostile-%03d", day), toRecipient(hostileRecipients[day/6%len(hostileRecipients)]))
			}
			w.advance(24 * time.Hour)
			if paused := ParseMailState(w.stateConfigMap()).Paused; paused {
				pauses++
			}
			if _, err := retention.deleteExpired(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.advance(10 * 24 * time.Hour)
		sent := w.sentCounts()
		for name := range want {
			if sent[name] != 1 {
				t.Errorf("%s was sent %d times", name, sent[name])
			}
		}
		for _, m := range w.mails {
			name := strings.TrimSuffix(strings.TrimPrefix(m.id, "<"), "@example.org>")
			at, ok := recorded[name]
			// A new configuration is noticed within half a minute, the server's return within ten.
			disturbed := at.After(server.downFrom.Add(-time.Minute)) && at.Before(server.downUntil) || name >= "day-200" && name < "day-202"
			if ok && !disturbed && m.at.Sub(at) > time.Hour {
				t.Errorf("%s to %s was sent after %s", name, m.to, m.at.Sub(at))
			}
		}
		if pauses != 2 {
			t.Errorf("mail was paused on %d days, want 2", pauses)
		}
		for _, n := range w.listNotices() {
			if n.Status.Phase == v1alpha1.NoticePending || n.Status.Phase == v1alpha1.NoticeSending || n.Status.Phase == "" {
				t.Logf("%s to %s is %q after %d attempts: %s", n.Name, n.Spec.Recipient.Email, n.Status.Phase, n.Status.Attempts, n.Status.LastError)
			}
		}
		if left := len(w.listNotices()); left > 100 {
			t.Errorf("%d notices are kept", left)
		}
	})
}
