// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func failure(fault Fault, text string) error { return &Failure{Fault: fault, Err: errors.New(text)} }

// Nothing is written when nothing is due; what is due is sent, once.
func TestSendsWhatIsDueOnce(t *testing.T) {
	within(t, func(w *world) {
		w.live(time.Hour)
		w.record("stopped")
		w.record("tomorrow", func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(time.Now().Add(24 * time.Hour)) })
		w.live(time.Hour)
		if diff := cmp.Diff(map[string]int{"stopped": 1}, w.sent()); diff != "" {
			t.Error(diff)
		}
		n := w.notice("stopped")
		want := v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSent, Attempts: 1, MessageID: "<stopped@example.org>", ClaimedAt: n.Status.ClaimedAt, SentAt: n.Status.SentAt}
		if diff := cmp.Diff(want, n.Status); diff != "" {
			t.Error(diff)
		}
		if n.Status.SentAt == nil || n.Status.SentAt.Sub(n.Spec.DueAt.Time) > 10*time.Second {
			t.Errorf("due at %v, sent at %v", n.Spec.DueAt, n.Status.SentAt)
		}
		w.writes = 0
		w.live(22 * time.Hour)
		if w.writes != 0 {
			t.Errorf("%d writes while nothing was due", w.writes)
		}
		w.live(2 * time.Hour)
		if diff := cmp.Diff(map[string]int{"stopped": 1, "tomorrow": 1}, w.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// Invariants 6 and 8: a crash before or after any write, and before or after any
// answer of the mail server, loses no message and repeats at most one, under the same
// Message-ID.
func TestCrashAnywhere(t *testing.T) {
	scene := func(w *world) {
		now := w.clock.Now()
		w.record("stopped")
		w.record("24h", warns("train", "24h", now.Add(-23*time.Hour), now.Add(time.Hour)))
		w.record("4h", warns("train", "4h", now.Add(-3*time.Hour), now.Add(time.Hour)))
		w.record("to-ben", to("ben@example.org"))
		for _, project := range []string{"p1", "p2"} {
			w.record(project, warns(project, "7d", now, now.Add(7*24*time.Hour)), func(n *v1alpha1.Notice) {
				n.Spec.Kind, n.Spec.Digest = v1alpha1.NoticeProjectExpiring, "digest-of-today"
			})
		}
		// The first is greylisted, the second gone in the dark.
		w.answer = func(_ string, n int) (error, bool) {
			switch n {
			case 0:
				return failure(Temporary, "451 try again"), false
			case 1:
				return failure(Unknown, "no answer"), false
			}
			return nil, true
		}
		w.live(12 * time.Hour)
	}
	want := map[string]string{
		"stopped": "Sent", "24h": "Superseded: a later warning says all that it would have said", "4h": "Sent", "to-ben": "Sent",
		"p1": "Sent", "p2": "Sent", "digest-of-today": "Sent",
	}
	points := 0
	within(t, func(w *world) { scene(w); points = w.points })
	if points < 15 {
		t.Fatalf("only %d points: the scene is not what it is meant to be", points)
	}
	for crashAt := 1; crashAt <= points; crashAt++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after=%v", crashAt, after), func(t *testing.T) {
				within(t, func(w *world) {
					w.crashAt, w.after = crashAt, after
					scene(w)
					if !w.crashed {
						t.Fatal("it did not crash")
					}
					if diff := cmp.Diff(want, w.phases()); diff != "" {
						t.Error(diff)
					}
					repeated := 0
					for id, times := range w.sent() {
						repeated += times - 1
						if w.notice(id).Status.MessageID != "<"+id+"@example.org>" {
							t.Errorf("%s was sent under another Message-ID", id)
						}
					}
					if repeated > 1 || len(w.sent()) != 4 {
						t.Errorf("sent: %v", w.sent())
					}
				})
			})
		}
	}
}

// Invariant 6: two that both believe they lead send each message once.
func TestTwoLeaders(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond} {
		t.Run(slow.String(), func(t *testing.T) {
			within(t, func(w *world) {
				w.slow = slow
				w.start()
				want := map[string]int{}
				for i := range 20 {
					name := fmt.Sprintf("n%02d", i)
					w.record(name)
					want[name] = 1
				}
				w.live(time.Hour)
				if diff := cmp.Diff(want, w.sent()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Invariant 6: that the API server was away after the mail was taken repeats nothing
// while the process lives.
func TestWhatCannotBeWrittenIsWrittenLater(t *testing.T) {
	within(t, func(w *world) {
		w.record("stopped")
		p := w.processes[0]
		p.Carrier = &answered{p.Carrier, func() { w.away = true }}
		w.live(30 * time.Minute) // longer than a claim lasts
		w.away = false
		w.live(time.Hour)
		if diff := cmp.Diff(map[string]int{"stopped": 1}, w.sent()); diff != "" {
			t.Error(diff)
		}
		if got := w.notice("stopped").Status.Phase; got != v1alpha1.NoticeSent {
			t.Error(got)
		}
	})
}

// Two recipients, of whom one cannot be reached for ever: the other does not notice.
func TestOneFailsForEver(t *testing.T) {
	tests := map[string]struct {
		err   error
		took  bool
		tries int32
		mails int
		says  string
	}{
		"no such mailbox":     {failure(Recipient, "550 5.1.1 no such user"), false, 1, 0, "Failed: 550 5.1.1 no such user"},
		"greylisted always":   {failure(Temporary, "451 later"), false, 35, 0, "Failed: 451 later"},
		"any other error":     {errors.New("what?"), false, 35, 0, "Failed: what?"},
		"taken, no answer":    {failure(Unknown, "i/o timeout"), true, 2, 2, "Failed: may have arrived: i/o timeout"},
		"a secret is no line": {failure(Recipient, "550 no\r\nX: y\x00"), false, 1, 0, "Failed: 550 no  X: y "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			within(t, func(w *world) {
				w.answer = func(to string, _ int) (error, bool) {
					if to == "ben@example.org" {
						return tc.err, tc.took
					}
					return nil, true
				}
				w.record("to-ben", to("ben@example.org"))
				for day := range 7 {
					w.record(fmt.Sprint("day", day))
					w.live(24 * time.Hour)
				}
				sent := w.sent()
				for day := range 7 {
					if sent[fmt.Sprint("day", day)] != 1 {
						t.Errorf("day %d: %v", day, sent)
					}
				}
				n := w.notice("to-ben")
				if got := w.phases()["to-ben"]; got != tc.says || n.Status.Attempts != tc.tries || sent["to-ben"] != tc.mails {
					t.Errorf("%q after %d attempts, %d mails; want %q after %d, %d", got, n.Status.Attempts, sent["to-ben"], tc.says, tc.tries, tc.mails)
				}
			})
		})
	}
}

// Invariant 6: a mail server that is away or full for days loses nothing, and is
// spoken to now and then only.
func TestTheServerIsAwayForDays(t *testing.T) {
	within(t, func(w *world) {
		back := time.Now().Add(9 * 24 * time.Hour)
		tries := 0
		w.answer = func(string, int) (error, bool) {
			if time.Now().Before(back) {
				tries++
				return failure(Server, "452 4.3.1 insufficient system storage"), false
			}
			return nil, true
		}
		want := map[string]int{}
		for i := range 30 {
			name := fmt.Sprintf("n%02d", i)
			w.record(name)
			want[name] = 1
		}
		w.live(5 * time.Minute)
		w.restart() // what is known of the server is forgotten, and found out again
		w.live(9*24*time.Hour + time.Hour)
		if diff := cmp.Diff(want, w.sent()); diff != "" {
			t.Error(diff)
		}
		if most := 9*24*7 + 40; tries > most {
			t.Errorf("%d tries in nine days; want at most %d", tries, most)
		}
		for name, phase := range w.phases() {
			if phase != "Sent" {
				t.Errorf("%s: %s", name, phase)
			}
		}
	})
}

// Mail pauses by itself where its configuration does not work, burns no attempt, and
// goes on by itself when the configuration or a Secret has changed.
func TestPausesUntilTheConfigurationChanges(t *testing.T) {
	within(t, func(w *world) {
		w.answer = func(string, int) (error, bool) {
			if w.fingerprint == "first" {
				return failure(Configuration, "535 5.7.8 wrong password"), false
			}
			return nil, true
		}
		for i := range 10 {
			w.record(fmt.Sprint("n", i))
		}
		w.live(48 * time.Hour)
		if w.tries > abreast || len(w.sent()) != 0 {
			t.Fatalf("%d tries, sent %v", w.tries, w.sent())
		}
		state := StateOf(w.state())
		if !state.Paused || state.Because != "535 5.7.8 wrong password" || state.Configuration != "first" {
			t.Fatalf("%+v", state)
		}
		if event := <-w.processes[0].events.Events; !strings.Contains(event, "MailPaused") || !strings.Contains(event, "535 5.7.8") {
			t.Error(event)
		}
		w.restart()
		w.live(time.Hour)
		if w.tries > abreast {
			t.Error("a restart forgot that mail is paused")
		}
		w.fingerprint = "second"
		w.live(10 * time.Minute)
		if len(w.sent()) != 10 || StateOf(w.state()).Paused {
			t.Errorf("sent %v; %v", w.sent(), w.state().Data)
		}
		for _, n := range w.notices() {
			if n.Status.Attempts != 1 {
				t.Errorf("%s: %d attempts", n.Name, n.Status.Attempts)
			}
		}
	})
}

// A person's pause is for a person to end: no change of the configuration does.
func TestAPersonPauses(t *testing.T) {
	within(t, func(w *world) {
		w.live(time.Minute)
		set := func(paused string) {
			object := w.state()
			object.Data[StatePaused], object.Data[StateBecause] = paused, "moving house"
			if err := w.raw.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		set("true")
		w.record("stopped")
		w.live(time.Hour)
		w.fingerprint = "second"
		w.live(time.Hour)
		if len(w.sent()) != 0 {
			t.Fatalf("sent %v", w.sent())
		}
		set("false")
		w.live(time.Minute)
		if diff := cmp.Diff(map[string]int{"stopped": 1}, w.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// No restart and no number of Notices makes one address' day longer, and all is sent
// in the end.
func TestRates(t *testing.T) {
	within(t, func(w *world) {
		w.rates = Rates{PerMinute: 8, PerRecipientPerDay: 5}
		w.restart()
		for i := range 12 {
			w.record(fmt.Sprintf("anna%02d", i))
		}
		for i := range 40 {
			w.record(fmt.Sprintf("other%02d", i), to(v1alpha1.EmailAddress(fmt.Sprintf("u%d@example.org", i))))
		}
		w.live(10 * time.Minute)
		if got := len(w.mails); got != 45 {
			t.Errorf("%d mails on the first day; want 5 + 40", got)
		}
		w.restart()
		w.live(3 * 24 * time.Hour)
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

// The day of a recipient is one of machine time, though what was sent is recorded in
// policy time.
func TestTheDayIsMachineTime(t *testing.T) {
	within(t, func(w *world) {
		w.rates = Rates{PerRecipientPerDay: 1}
		w.restart()
		w.record("first")
		w.live(time.Minute)
		w.clock.line, _ = w.clock.line.Advanced(365*24*time.Hour, time.Now())
		w.record("second")
		w.live(time.Hour)
		if diff := cmp.Diff(map[string]int{"first": 1}, w.sent()); diff != "" {
			t.Error(diff)
		}
		w.live(24 * time.Hour)
		if diff := cmp.Diff(map[string]int{"first": 1, "second": 1}, w.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

// What somebody wants again is sent again, once for each wish; what was sent stays
// sent, since then, whatever becomes of it.
func TestResend(t *testing.T) {
	within(t, func(w *world) {
		w.record("stopped")
		w.live(time.Hour)
		first := w.notice("stopped").Status.SentAt
		want := func(wanted int) {
			t.Helper()
			n := w.notice("stopped")
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: time.Now().UTC().Format(time.RFC3339)}
			if err := w.raw.Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			w.live(time.Hour)
			if diff := cmp.Diff(map[string]int{"stopped": wanted}, w.sent()); diff != "" {
				t.Error(diff)
			}
			if n := w.notice("stopped"); n.Status.Phase != v1alpha1.NoticeSent || !n.Status.SentAt.Equal(first) {
				t.Errorf("%+v", n.Status)
			}
		}
		want(2)
		want(3)
		w.answer = func(string, int) (error, bool) { return failure(Recipient, "550 gone"), false }
		want(3)
	})
}

// Thousands that wait are no matter, and the most urgent comes first.
func TestTenThousandWait(t *testing.T) {
	now := Moment{Machine: noon, Policy: noon}
	all := make([]v1alpha1.Notice, 0, 10_001)
	for i := range 10_000 {
		all = append(all, *notice(func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Recipient.Email = fmt.Sprintf("n%05d", i), v1alpha1.EmailAddress(fmt.Sprintf("u%d@example.org", i%500))
			n.Spec.DueAt, n.Spec.Kind = *at(-time.Hour), v1alpha1.NoticeProjectExpired
		}))
	}
	urgent := *notice(func(n *v1alpha1.Notice) {
		n.Name, n.Spec.DueAt, n.Spec.Deadline = "urgent", *at(-time.Minute), at(29*time.Minute)
	})
	all = append(all, urgent)
	began := time.Now()
	p := survey(now, all, time.Time{}, DefaultLimits())
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a look at them took %v", took)
	}
	if len(p.send) != 10_001 || p.send[0].Name != "urgent" {
		t.Errorf("%d to send, first %s", len(p.send), p.send[0].Name)
	}
}
