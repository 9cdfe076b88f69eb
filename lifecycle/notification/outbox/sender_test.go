// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func newFailure(fault FailureKind, text string) error {
	return &Failure{Kind: fault, Err: errors.New(text)}
}

// Nothing is written while nothing is due; a due Notice is sent once.
func TestSendsDueNoticesOnce(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.advance(time.Hour)
		w.recordNotice("stopped")
		w.recordNotice("tomorrow", func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(time.Now().Add(24 * time.Hour)) })
		w.advance(time.Hour)
		if diff := cmp.Diff(map[string]int{"stopped": 1}, w.sentCounts()); diff != "" {
			t.Error(diff)
		}
		n := w.getNotice("stopped")
		want := v1alpha1.NoticeStatus{
			Phase: v1alpha1.NoticeSent, Attempts: 1, MessageID: "<stopped@example.org>", ClaimedAt: n.Status.ClaimedAt,
			SentAt: n.Status.SentAt,
		}
		if diff := cmp.Diff(want, n.Status); diff != "" {
			t.Error(diff)
		}
		if n.Status.SentAt == nil || n.Status.SentAt.Sub(n.Spec.DueAt.Time) > 10*time.Second {
			t.Errorf("due at %v, sent at %v", n.Spec.DueAt, n.Status.SentAt)
		}
		w.writes = 0
		w.advance(22 * time.Hour)
		if w.writes != 0 {
			t.Errorf("%d writes while nothing was due", w.writes)
		}
		w.advance(2 * time.Hour)
		if diff := cmp.Diff(map[string]int{"stopped": 1, "tomorrow": 1}, w.sentCounts()); diff != "" {
			t.Error(diff)
		}
	})
}

// Invariants 6 and 8: a crash before or after any write and any reply of the mail server loses no
// message and repeats at most one, under the same Message-ID.
func TestCrashAtEveryPoint(t *testing.T) {
	scene := func(w *testEnv) {
		now := w.clock.Now()
		w.recordNotice("stopped")
		w.recordNotice("24h", asWarning("train", "24h", now.Add(-23*time.Hour), now.Add(time.Hour)))
		w.recordNotice("4h", asWarning("train", "4h", now.Add(-3*time.Hour), now.Add(time.Hour)))
		w.recordNotice("to-ben", toRecipient("ben@example.org"))
		for _, project := range []string{"p1", "p2"} {
			w.recordNotice(project, asWarning(project, "7d", now, now.Add(7*24*time.Hour)), func(n *v1alpha1.Notice) {
				n.Spec.Kind, n.Spec.Digest = v1alpha1.NoticeProjectExpiring, "digest-of-today"
			})
		}
		// The first is greylisted, the second gets no reply.
		w.respond = func(_ string, n int) (error, bool) {
			switch n {
			case 0:
				return newFailure(TemporaryFailure, "451 try again"), false
			case 1:
				return newFailure(UnknownOutcome, "no answer"), false
			}
			return nil, true
		}
		w.advance(12 * time.Hour)
	}
	want := map[string]string{
		"stopped": "Sent", "24h": "Superseded: a later warning replaces it", "4h": "Sent", "to-ben": "Sent",
		"p1": "Sent", "p2": "Sent", "digest-of-today": "Sent",
	}
	points := 0
	inTestEnv(t, func(w *testEnv) { scene(w); points = w.points })
	if points < 15 {
		t.Fatalf("only %d crash points", points)
	}
	for crashAt := 1; crashAt <= points; crashAt++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after=%v", crashAt, after), func(t *testing.T) {
				inTestEnv(t, func(w *testEnv) {
					w.crashAt, w.after = crashAt, after
					scene(w)
					if !w.crashed {
						t.Fatal("it did not crash")
					}
					if diff := cmp.Diff(want, w.phases()); diff != "" {
						t.Error(diff)
					}
					repeated := 0
					for id, times := range w.sentCounts() {
						repeated += times - 1
						if w.getNotice(id).Status.MessageID != "<"+id+"@example.org>" {
							t.Errorf("%s was sent under another Message-ID", id)
						}
					}
					if repeated > 1 || len(w.sentCounts()) != 4 {
						t.Errorf("sent: %v", w.sentCounts())
					}
				})
			})
		}
	}
}

// Invariant 6: two leaders at once send each message once.
func TestTwoLeaders(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond} {
		t.Run(slow.String(), func(t *testing.T) {
			inTestEnv(t, func(w *testEnv) {
				w.apiLatency = slow
				w.start()
				want := map[string]int{}
				for i := range 20 {
					name := fmt.Sprintf("n%02d", i)
					w.recordNotice(name)
					want[name] = 1
				}
				w.advance(time.Hour)
				if diff := cmp.Diff(want, w.sentCounts()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Invariant 6: an API server that is unavailable after the mail was accepted causes no duplicate while
// the process lives.
func TestUnwrittenStatusRetried(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.recordNotice("stopped")
		p := w.processes[0]
		p.Transport = &hookTransport{p.Transport, func() { w.apiUnavailable = true }}
		w.advance(30 * time.Minute) // longer than a claim is valid
		w.apiUnavailable = false
		w.advance(time.Hour)
		if diff := cmp.Diff(map[string]int{"stopped": 1}, w.sentCounts()); diff != "" {
			t.Error(diff)
		}
		if got := w.getNotice("stopped").Status.Phase; got != v1alpha1.NoticeSent {
			t.Error(got)
		}
	})
}

// One unreachable recipient does not affect the other.
func TestFailingRecipientDoesNotBlockOthers(t *testing.T) {
	tests := map[string]struct {
		err         error
		accepted    bool
		tries       int32
		mails       int
		wantMessage string
	}{
		"no such mailbox":    {newFailure(RecipientFailure, "550 5.1.1 no such user"), false, 1, 0, "Failed: 550 5.1.1 no such user"},
		"greylisted always":  {newFailure(TemporaryFailure, "451 later"), false, 35, 0, "Failed: 451 later"},
		"any other error":    {errors.New("what?"), false, 35, 0, "Failed: what?"},
		"accepted, no reply": {newFailure(UnknownOutcome, "i/o timeout"), true, 2, 2, "Failed: may have arrived: i/o timeout"},
		"control characters": {newFailure(RecipientFailure, "550 no\r\nX: y\x00"), false, 1, 0, "Failed: 550 no  X: y "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			inTestEnv(t, func(w *testEnv) {
				w.respond = func(to string, _ int) (error, bool) {
					if to == "ben@example.org" {
						return tc.err, tc.accepted
					}
					return nil, true
				}
				w.recordNotice("to-ben", toRecipient("ben@example.org"))
				for day := range 7 {
					w.recordNotice(fmt.Sprint("day", day))
					w.advance(24 * time.Hour)
				}
				sent := w.sentCounts()
				for day := range 7 {
					if sent[fmt.Sprint("day", day)] != 1 {
						t.Errorf("day %d: %v", day, sent)
					}
				}
				n := w.getNotice("to-ben")
				if got := w.phases()["to-ben"]; got != tc.wantMessage || n.Status.Attempts != tc.tries || sent["to-ben"] != tc.mails {
					t.Errorf("%q after %d attempts, %d mails; want %q after %d, %d", got, n.Status.Attempts, sent["to-ben"], tc.wantMessage, tc.tries, tc.mails)
				}
			})
		})
	}
}

// Invariant 6: a mail server that is down or full for days causes no loss, and is tried rarely.
func TestServerUnavailableForDays(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		back := time.Now().Add(9 * 24 * time.Hour)
		tries := 0
		w.respond = func(string, int) (error, bool) {
			if time.Now().Before(back) {
				tries++
				return newFailure(ServerFailure, "452 4.3.1 insufficient system storage"), false
			}
			return nil, true
		}
		want := map[string]int{}
		for i := range 30 {
			name := fmt.Sprintf("n%02d", i)
			w.recordNotice(name)
			want[name] = 1
		}
		w.advance(5 * time.Minute)
		w.restart() // forgets the state of the server
		w.advance(9*24*time.Hour + time.Hour)
		if diff := cmp.Diff(want, w.sentCounts()); diff != "" {
			t.Error(diff)
		}
		if limit := 9*24*7 + 40; tries > limit {
			t.Errorf("%d tries in nine days; want at most %d", tries, limit)
		}
		for name, phase := range w.phases() {
			if phase != "Sent" {
				t.Errorf("%s: %s", name, phase)
			}
		}
	})
}

// Mail pauses when its configuration fails, counts no attempt, and resumes when the configuration or a
// Secret changes.
func TestPausedUntilConfigurationChanges(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.respond = func(string, int) (error, bool) {
			if w.fingerprint == "first" {
				return newFailure(ConfigurationFailure, "535 5.7.8 wrong password"), false
			}
			return nil, true
		}
		for i := range 10 {
			w.recordNotice(fmt.Sprint("n", i))
		}
		w.advance(48 * time.Hour)
		if w.tries > maxConcurrentSends || len(w.sentCounts()) != 0 {
			t.Fatalf("%d tries, sent %v", w.tries, w.sentCounts())
		}
		state := ParseMailState(w.stateConfigMap())
		if !state.Paused || state.Reason != "535 5.7.8 wrong password" || state.FailedConfiguration != "first" {
			t.Fatalf("%+v", state)
		}
		if event := <-w.processes[0].events.Events; !strings.Contains(event, "MailPaused") || !strings.Contains(event, "535 5.7.8") {
			t.Error(event)
		}
		w.restart()
		w.advance(time.Hour)
		if w.tries > maxConcurrentSends {
			t.Error("a restart forgot that mail is paused")
		}
		w.fingerprint = "second"
		w.advance(10 * time.Minute)
		if len(w.sentCounts()) != 10 || ParseMailState(w.stateConfigMap()).Paused {
			t.Errorf("sent %v; %v", w.sentCounts(), w.stateConfigMap().Data)
		}
		for _, n := range w.listNotices() {
			if n.Status.Attempts != 1 {
				t.Errorf("%s: %d attempts", n.Name, n.Status.Attempts)
			}
		}
	})
}

// Only an administrator ends an administrator's pause; a configuration change does not.
func TestManualPause(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.advance(time.Minute)
		set := func(paused string) {
			object := w.stateConfigMap()
			object.Data[MailStatePausedKey], object.Data[MailStateReasonKey] = paused, "moving house"
			if err := w.raw.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		set("true")
		w.recordNotice("stopped")
		w.advance(time.Hour)
		w.fingerprint = "second"
		w.advance(time.Hour)
		if len(w.sentCounts()) != 0 {
			t.Fatalf("sent %v", w.sentCounts())
		}
		set("false")
		w.advance(time.Minute)
		if diff := cmp.Diff(map[string]int{"stopped": 1}, w.sentCounts()); diff != "" {
			t.Error(diff)
		}
	})
}

// The daily limit of an address holds across restarts, and all Notices are sent eventually.
func TestRateLimits(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.rates = Rates{PerMinute: 8, PerRecipientPerDay: 5}
		w.restart()
		for i := range 12 {
			w.recordNotice(fmt.Sprintf("anna%02d", i))
		}
		for i := range 40 {
			w.recordNotice(fmt.Sprintf("other%02d", i), toRecipient(v1alpha1.EmailAddress(fmt.Sprintf("u%d@example.org", i))))
		}
		w.advance(10 * time.Minute)
		if got := len(w.mails); got != 45 {
			t.Errorf("%d mails on the first day; want 5 + 40", got)
		}
		w.restart()
		w.advance(3 * 24 * time.Hour)
		var anna []time.Time
		for i, m := range w.mails {
			if m.to == "anna@example.org" {
				anna = append(anna, m.at)
			}
			if i >= 10 && m.at.Sub(w.mails[i-10].at) < time.Minute {
				t.Errorf("more than 10 mails within a minute, up to %v", m.at)
			}
		}
		for i := 5; i < len(anna); i++ {
			if anna[i].Sub(anna[i-5]) < 24*time.Hour-time.Second {
				t.Errorf("more than 5 mails within a day, up to %v", anna[i])
			}
		}
		if len(anna) != 12 {
			t.Errorf("anna got %d", len(anna))
		}
	})
}

// The daily limit counts machine time, although sentAt is policy time.
func TestRecipientRateUsesMachineTime(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.rates = Rates{PerRecipientPerDay: 1}
		w.restart()
		w.recordNotice("first")
		w.advance(time.Minute)
		w.clock.line, _ = w.clock.line.WithStep(365*24*time.Hour, time.Now())
		w.recordNotice("second")
		w.advance(time.Hour)
		if diff := cmp.Diff(map[string]int{"first": 1}, w.sentCounts()); diff != "" {
			t.Error(diff)
		}
		w.advance(24 * time.Hour)
		if diff := cmp.Diff(map[string]int{"first": 1, "second": 1}, w.sentCounts()); diff != "" {
			t.Error(diff)
		}
	})
}

// Each resend request sends the Notice once more; a sent Notice stays Sent with every outcome.
func TestResend(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.recordNotice("stopped")
		w.advance(time.Hour)
		first := w.getNotice("stopped").Status.SentAt
		want := func(count int) {
			t.Helper()
			n := w.getNotice("stopped")
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: time.Now().UTC().Format(time.RFC3339)}
			if err := w.raw.Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			w.advance(time.Hour)
			if diff := cmp.Diff(map[string]int{"stopped": count}, w.sentCounts()); diff != "" {
				t.Error(diff)
			}
			if n := w.getNotice("stopped"); n.Status.Phase != v1alpha1.NoticeSent || !n.Status.SentAt.Equal(first) {
				t.Errorf("%+v", n.Status)
			}
		}
		want(2)
		want(3)
		w.respond = func(string, int) (error, bool) { return newFailure(RecipientFailure, "550 gone"), false }
		want(3)
	})
}

// A pass does not read the record of earlier Notices.
func TestPassReadsOnlyRelevantNotices(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		for i := range 300 {
			w.recordNotice(fmt.Sprintf("n%03d", i))
		}
		w.advance(24 * time.Hour)
		w.cache.read.Store(0)
		w.recordNotice("new")
		w.advance(24 * time.Hour)
		if read := w.cache.read.Load(); w.sentCounts()["new"] != 1 || read > 100 {
			t.Errorf("%d mails, %d notices read", w.sentCounts()["new"], read)
		}
	})
}

// processorTime returns the processor time of this process, which a busy machine changes less than the duration.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Planning thousands of Notices is fast, and the most urgent comes first.
func TestTenThousandPendingNotices(t *testing.T) {
	now := Instant{Machine: noon, Policy: noon}
	all := make([]v1alpha1.Notice, 0, 10_001)
	for i := range 10_000 {
		all = append(all, *newNotice(func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Recipient.Email = fmt.Sprintf("n%05d", i), v1alpha1.EmailAddress(fmt.Sprintf("u%d@example.org", i%500))
			n.Spec.DueAt, n.Spec.Kind = *atOffset(-time.Hour), v1alpha1.NoticeProjectExpired
		}))
	}
	urgent := *newNotice(func(n *v1alpha1.Notice) {
		n.Name, n.Spec.DueAt, n.Spec.Deadline = "urgent", *atOffset(-time.Minute), atOffset(29*time.Minute)
	})
	all = append(all, urgent)
	began := processorTime(t)
	p := newPlan(now, all, time.Time{}, DefaultLimits())
	if used := processorTime(t) - began; used > 2*time.Second {
		t.Errorf("planning used %v of processor time", used)
	}
	if len(p.toSend) != 10_001 || p.toSend[0].Name != "urgent" {
		t.Errorf("%d to send, first %s", len(p.toSend), p.toSend[0].Name)
	}
}
