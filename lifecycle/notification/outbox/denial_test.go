// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/smtp"
)

// relayDenial is the error of the transport for a denied recipient.
func relayDenial(to string) error {
	return transportFailure(&smtp.Failure{
		Kind: smtp.DeniedFailure, Code: 554, Enhanced: "5.7.1", Text: "<" + to + ">: Relay access denied",
		Stage: smtp.StageRcpt, Server: "mail:587",
	}, to)
}

// Invariant 6: thirty days after one "554 5.7.1 Relay access denied", each other mail was sent
// once. The attempts of the denied one are counted.
func TestDeniedRecipientHarmsNobodyElse(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.respond = func(to string, _ int) (error, bool) {
			if strings.HasSuffix(to, "@example.com") {
				return relayDenial(to), false
			}
			return nil, true
		}
		w.recordNotice("to-mallory", toRecipient("mallory@example.com"))
		want := map[string]int{}
		for day := range 30 {
			name := fmt.Sprint("day", day)
			want[name] = 1
			w.recordNotice(name, toRecipient(v1alpha1.EmailAddress(fmt.Sprintf("u%d@d%d.example.org", day, day%3))))
			w.advance(24 * time.Hour)
		}
		if diff := cmp.Diff(want, w.sentCounts()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		n := w.getNotice("to-mallory")
		if n.Status.Phase != v1alpha1.NoticeFailed || int(n.Status.Attempts) != w.limits.MaxAttempts {
			t.Errorf("the denied notice is %s after %d attempts", n.Status.Phase, n.Status.Attempts)
		}
		if ParseMailState(w.stateConfigMap()).Paused {
			t.Errorf("mail is paused: %v", w.stateConfigMap().Data)
		}
	})
}

// A server that accepts no mail denies a second domain in the same words: mail pauses, loses
// nothing, and resumes with the next configuration.
func TestSecondDeniedDomainPausesMail(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.respond = func(to string, _ int) (error, bool) {
			if w.fingerprint == "first" {
				return relayDenial(to), false
			}
			return nil, true
		}
		w.recordNotice("anna-1")
		w.recordNotice("anna-2")
		w.advance(24 * time.Hour)
		if ParseMailState(w.stateConfigMap()).Paused {
			t.Fatal("one denied domain paused mail")
		}
		w.recordNotice("ben", toRecipient("ben@example.com"))
		w.advance(time.Hour)
		state := ParseMailState(w.stateConfigMap())
		want := "the mail server denies recipients of more than one domain: 554 5.7.1 relay access denied"
		if !state.Paused || state.Reason != want {
			t.Fatalf("%+v", state)
		}
		tries := w.tries
		w.advance(7 * 24 * time.Hour)
		if w.tries != tries {
			t.Errorf("%d attempts during the pause", w.tries-tries)
		}
		w.fingerprint = "second"
		w.advance(5 * time.Hour)
		if diff := cmp.Diff(map[string]int{"anna-1": 1, "anna-2": 1, "ben": 1}, w.sentCounts()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// A mail server that denies all foreign domains pauses no mail to its own, also after a quiet week
// and a restart.
func TestDeniedForeignDomainsPauseNothing(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.respond = func(to string, _ int) (error, bool) {
			if !strings.HasSuffix(to, "@example.org") {
				return relayDenial(to), false
			}
			return nil, true
		}
		w.recordNotice("first")
		w.advance(time.Hour)
		w.advance(7 * 24 * time.Hour)
		w.restart()
		w.recordNotice("ben", toRecipient("ben@example.com"))
		w.recordNotice("carol", toRecipient("carol@example.net"))
		w.advance(3 * 24 * time.Hour)
		w.recordNotice("last")
		w.advance(time.Hour)
		if diff := cmp.Diff(map[string]int{"first": 1, "last": 1}, w.sentCounts()); diff != "" {
			t.Errorf("(-want +got)\n%s\n%v", diff, w.stateConfigMap().Data)
		}
	})
}

// Invariant 6: an accepted mail proves for a day of machine time that the configuration works, also
// after a restart and a step of policy time. Until then two domains that are denied in the same words
// pause nothing.
func TestAcceptedMailPreventsPauseForADay(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		denied := false
		w.respond = func(to string, _ int) (error, bool) {
			if denied {
				return relayDenial(to), false
			}
			return nil, true
		}
		w.recordNotice("accepted")
		w.advance(time.Hour)
		w.restart()
		w.clock.line, _ = w.clock.line.WithStep(14*24*time.Hour, time.Now())
		denied = true
		w.recordNotice("anna")
		w.recordNotice("ben", toRecipient("ben@example.com"))
		w.advance(22 * time.Hour)
		if state := ParseMailState(w.stateConfigMap()); state.Paused {
			t.Fatalf("mail is paused although one was accepted 23 hours ago: %+v", state)
		}
		w.advance(12 * time.Hour)
		if !ParseMailState(w.stateConfigMap()).Paused {
			t.Error("mail is not paused although no mail was accepted for a day")
		}
	})
}

// A mail that makes the server close is given up in the end, since the server accepts other mail;
// while it accepts none, no attempt counts.
func TestMailThatClosesServerIsGivenUp(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.respond = func(to string, _ int) (error, bool) {
			if to == "mallory@example.org" {
				return &Failure{Kind: ServerFailure, AfterRecipient: true, Err: errors.New("421 4.7.0 closing")}, false
			}
			return nil, true
		}
		w.recordNotice("poison", toRecipient("mallory@example.org"))
		w.advance(7 * 24 * time.Hour)
		if n := w.getNotice("poison"); n.Status.Phase != v1alpha1.NoticePending || n.Status.Attempts != 0 {
			t.Fatalf("it is %s after %d attempts", n.Status.Phase, n.Status.Attempts)
		}
		want := map[string]int{}
		for i := range 150 {
			name := fmt.Sprint("n", i)
			want[name] = 1
			w.recordNotice(name, toRecipient(v1alpha1.EmailAddress(fmt.Sprintf("u%d@example.org", i))))
			w.advance(time.Hour)
		}
		if diff := cmp.Diff(want, w.sentCounts()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if n := w.getNotice("poison"); n.Status.Phase != v1alpha1.NoticeFailed {
			t.Errorf("it is %s after %d attempts", n.Status.Phase, n.Status.Attempts)
		}
	})
}

func TestDeniesAllMail(t *testing.T) {
	t.Parallel()
	sent := func(address string, ago time.Duration) v1alpha1.Notice {
		return *newNotice(func(n *v1alpha1.Notice) {
			n.Spec.Recipient.Email, n.Status.Phase, n.Status.SentAt = v1alpha1.EmailAddress(address), v1alpha1.NoticeSent, atOffset(-ago)
		})
	}
	day := 24 * time.Hour
	for name, tc := range map[string]struct {
		denials denials
		notices []v1alpha1.Notice
		want    bool
	}{
		"one domain":                          {denials{"a.org": "no"}, nil, false},
		"two domains, different words":        {denials{"a.org": "no", "b.org": "never"}, nil, false},
		"two domains, nothing ever sent":      {denials{"a.org": "no", "b.org": "no"}, nil, true},
		"another domain received mail once":   {denials{"a.org": "no", "b.org": "no"}, []v1alpha1.Notice{sent("u@c.org", 30*day)}, false},
		"one of them received mail once":      {denials{"a.org": "no", "b.org": "no"}, []v1alpha1.Notice{sent("u@A.org", 30*day)}, true},
		"another domain received mail today":  {denials{"a.org": "no", "b.org": "no"}, []v1alpha1.Notice{sent("u@c.org", time.Hour)}, false},
		"one of them received mail yesterday": {denials{"a.org": "no", "b.org": "no"}, []v1alpha1.Notice{sent("u@b.org", 23*time.Hour)}, false},
	} {
		if got := tc.denials.deniesAllMail("no", tc.notices, noon.Add(-proofWindow)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Replies for different recipients with the same cause have the same words.
func TestDenialWords(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"<%s>: Relay access denied", "relay access denied for %s [192.0.2.7] queue 4XyZ1", "%s... Relay access DENIED", "Relay access denied",
	} {
		for _, to := range []string{"anna.mueller@example.org", "ben@mail.example.com"} {
			text := reply
			if strings.Contains(reply, "%s") {
				text = fmt.Sprintf(reply, to)
			}
			got := denialWords(&smtp.Failure{Code: 554, Enhanced: "5.7.1", Text: text}, to)
			got = strings.NewReplacer(" for queue", "").Replace(got)
			if got != "554 5.7.1 relay access denied" {
				t.Errorf("%q: %q", text, got)
			}
		}
	}
}

// People's addresses reach neither the log nor events nor the mail state.
func TestLogHoldsNoAddress(t *testing.T) {
	for name, err := range map[string]error{
		"denied":         relayDenial("anna.mueller@example.org"),
		"refused sender": newFailure(ConfigurationFailure, "550 5.1.8 sender rejected for <anna.mueller@example.org>"),
		"temporary":      newFailure(TemporaryFailure, "451 anna.mueller@example.org: greylisted"),
		"not a failure":  errors.New("compose mail: rcpt=anna.mueller%40example.org"),
		"no such mailbox": transportFailure(&smtp.Failure{
			Kind: smtp.RecipientFailure, Stage: smtp.StageRcpt, Code: 550, Text: "anna.mueller unknown",
		}, "anna.mueller@example.org"),
		"invalid address": transportFailure(&smtp.Failure{
			Kind: smtp.RecipientFailure, Stage: smtp.StageAddress, Text: `"anna.mueller" is not an address`,
		}, "anna.mueller"),
		"accepted at once": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inTestEnv(t, func(w *testEnv) {
				var lines []string
				logger := funcr.New(func(prefix, args string) { lines = append(lines, prefix+" "+args) }, funcr.Options{Verbosity: 10})
				ctx := ctrl.LoggerInto(w.t.Context(), logger)
				w.respond = func(string, int) (error, bool) { return err, err == nil }
				w.recordNotice("stopped", toRecipient("anna.mueller@example.org"))
				time.Sleep(time.Minute)
				if _, err := w.processes[0].Reconcile(ctx, ctrl.Request{}); err != nil {
					t.Fatal(err)
				}
				if w.tries != 1 || len(lines) == 0 {
					t.Fatalf("%d attempts, log %v", w.tries, lines)
				}
				close(w.processes[0].events.Events)
				for event := range w.processes[0].events.Events {
					lines = append(lines, event)
				}
				for _, value := range w.stateConfigMap().Data {
					lines = append(lines, value)
				}
				for _, line := range lines {
					if strings.Contains(line, "anna.mueller") {
						t.Error(line)
					}
				}
			})
		})
	}
}
