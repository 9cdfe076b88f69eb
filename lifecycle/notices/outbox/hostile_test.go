// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/clock"
	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Somebody takes the ConfigMap away to have mail go on. What waited in the pause is
// sent all the same, however old it is.
func TestTheStateIsTakenAway(t *testing.T) {
	within(t, func(w *world) {
		w.record("first")
		w.live(time.Minute)
		state := w.state()
		state.Data[StatePaused] = "true"
		if err := w.raw.Update(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		w.record("in-the-pause")
		w.live(3 * 24 * time.Hour)
		if err := w.raw.Delete(t.Context(), w.state()); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.live(10 * time.Minute)
		if diff := cmp.Diff(map[string]int{"first": 1, "in-the-pause": 1}, w.sent()); diff != "" {
			t.Errorf("(-want +got)\n%s\n%v", diff, w.phases())
		}
	})
}

// The Secret is rotated while mails are on their way with the old password: they are
// sent with the new one, and nothing pauses.
func TestCredentialsAreRotatedMidway(t *testing.T) {
	within(t, func(w *world) {
		w.live(time.Minute)
		w.answer = func(string, int) (error, bool) {
			if w.fingerprint == "first" {
				w.fingerprint = "second" // as this one is refused
				return &Failure{Fault: Configuration, Err: errors.New("535 wrong password")}, false
			}
			if len(w.mails) == 0 && w.tries < abreast { // those abreast had the old one, too
				return &Failure{Fault: Configuration, Err: errors.New("535 wrong password")}, false
			}
			return nil, true
		}
		want := map[string]int{}
		for i := range 6 {
			name := fmt.Sprint("n", i)
			want[name] = 1
			w.record(name)
		}
		w.live(10 * time.Minute)
		if diff := cmp.Diff(want, w.sent()); diff != "" {
			t.Errorf("(-want +got)\n%s\n%v\n%v", diff, w.phases(), w.state().Data)
		}
		if StateOf(w.state()).Paused {
			t.Errorf("mail is paused: %v", w.state().Data)
		}
		// One that does not work, either, pauses mail as ever.
		w.answer = func(string, int) (error, bool) {
			return &Failure{Fault: Configuration, Err: errors.New("535 wrong password")}, false
		}
		w.record("later")
		w.live(10 * time.Minute)
		if state := StateOf(w.state()); !state.Paused || state.Configuration != "second" {
			t.Errorf("%v", w.state().Data)
		}
	})
}

// At one mail the server says each time that it is closing. That costs the others no
// more than moments.
func TestAMailAtWhichTheServerCloses(t *testing.T) {
	within(t, func(w *world) {
		tries := 0
		w.answer = func(to string, _ int) (error, bool) {
			if to == "mallory@example.org" {
				tries++
				return &Failure{Fault: Server, Late: true, Err: errors.New("421 4.7.0 closing")}, false
			}
			return nil, true
		}
		w.record("a-poison", to("mallory@example.org"), func(n *v1alpha1.Notice) { n.Spec.Deadline = &n.Spec.DueAt })
		want := map[string]int{}
		for i := range 20 {
			w.live(30 * time.Second)
			name := fmt.Sprint("n", i)
			want[name] = 1
			w.record(name)
		}
		w.live(time.Minute)
		if diff := cmp.Diff(want, w.sent()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		w.live(24 * time.Hour)
		if tries < 24 || tries > 100 {
			t.Errorf("tried %d times in a day", tries)
		}
		n := w.notice("a-poison")
		if n.Status.Phase != v1alpha1.NoticePending || n.Status.Attempts != 0 {
			t.Errorf("it is %s, tried %d times", n.Status.Phase, n.Status.Attempts)
		}
	})
}

// A digest that somebody made by hand carries nobody else's Notices.
func TestADigestMadeByHand(t *testing.T) {
	within(t, func(w *world) {
		day := period.MustParseDate("2026-03-02")
		w.record("annas", func(n *v1alpha1.Notice) { n.Status.Phase = v1alpha1.NoticeSent })
		w.record("digest-by-hand", to("mallory@example.org"), func(n *v1alpha1.Notice) {
			n.Spec.Kind, n.Spec.Subject, n.Spec.Date = v1alpha1.NoticeDigest, nil, &day
			n.Spec.Inputs = map[string]string{InputCarries: "annas,gone"}
		})
		w.live(time.Hour)
		for _, m := range w.mails {
			if m.to == "mallory@example.org" {
				t.Errorf("mallory is told: %s", m.body)
			}
		}
		if n := w.notice("digest-by-hand"); n.Status.Phase != v1alpha1.NoticeFailed {
			t.Errorf("the digest is %v", n.Status)
		}
	})
}

// A Test goes before all others, is in no digest, and waits for no time of its own.
func TestATestGoesFirst(t *testing.T) {
	within(t, func(w *world) {
		w.rates = Rates{PerMinute: 4}
		w.restart()
		w.live(time.Minute)
		for i := range 40 {
			w.record(fmt.Sprintf("n%02d", i), func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(w.clock.Now().Add(-time.Hour)) })
		}
		w.live(time.Minute)
		before := len(w.mails)
		w.record("test-x", func(n *v1alpha1.Notice) {
			n.Spec.Kind, n.Spec.Subject, n.Spec.Inputs, n.Spec.Digest = v1alpha1.NoticeTest, nil, nil, "digest-of-anna"
			n.Spec.DueAt = metav1.NewTime(w.clock.Now().AddDate(3, 0, 0))
		})
		w.live(time.Minute)
		if len(w.mails) > before+5 {
			t.Errorf("%d mails in a minute", len(w.mails)-before)
		}
		if !slices.ContainsFunc(w.mails[before:], func(m mail) bool { return m.id == "<test-x@example.org>" }) {
			t.Errorf("it waits: %v", w.phases()["test-x"])
		}
	})
}

// Nobody waits for a Test that could not be tried for a day; one that is asked for
// again is.
func TestATestThatIsOld(t *testing.T) {
	within(t, func(w *world) {
		state := w.state()
		state.Namespace, state.Name, state.Data = stateKey.Namespace, stateKey.Name, map[string]string{StatePaused: "true"}
		if err := w.raw.Create(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		w.record("test-x", func(n *v1alpha1.Notice) { n.Spec.Kind, n.Spec.Subject, n.Spec.Inputs = v1alpha1.NoticeTest, nil, nil })
		w.live(26 * time.Hour)
		if n := w.notice("test-x"); n.Status.Phase != v1alpha1.NoticeSuperseded {
			t.Fatalf("it is %v", n.Status)
		}
		state = w.state()
		delete(state.Data, StatePaused)
		if err := w.raw.Update(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		n := w.notice("test-x")
		n.Annotations = map[string]string{v1alpha1.AnnotationResend: time.Now().Format(time.RFC3339)}
		if err := w.raw.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		w.live(time.Hour)
		if n := w.notice("test-x"); n.Status.Phase != v1alpha1.NoticeSent {
			t.Errorf("it is %v", n.Status)
		}
	})
}

// A deadline that moved between two digests has a higher SEQUENCE in the second, of
// its own; what stayed keeps its own.
func TestADeadlineThatMovesBetweenTwoDigests(t *testing.T) {
	within(t, func(w *world) {
		w.clock.line = clock.Timeline{Segments: []clock.Segment{{Real: time.Now().Add(-time.Hour), Policy: local(t, "2026-03-02 05:00"), Scale: 1}}}
		eight := digestsOf(t, "0 8 * * *")
		w.expiring("p1-first", "p1", eight, "7d", local(t, "2026-03-09 12:00"), "anna@example.org")
		w.expiring("p2-first", "p2", eight, "7d", local(t, "2026-03-09 12:00"), "anna@example.org")
		w.live(5 * time.Hour)
		w.expiring("p1-second", "p1", eight, "6d", local(t, "2026-03-10 12:00"), "anna@example.org")
		w.expiring("p2-second", "p2", eight, "6d", local(t, "2026-03-09 12:00"), "anna@example.org")
		w.live(48 * time.Hour)
		var got []string
		for _, m := range w.mails {
			if strings.HasPrefix(m.id, "<digest-") {
				for line := range strings.Lines(m.body) {
					if strings.HasPrefix(line, "sequence of") {
						got = append(got, strings.TrimSpace(line))
					}
				}
			}
		}
		want := []string{"sequence of p1-first 0", "sequence of p2-first 0", "sequence of p1-second 1", "sequence of p2-second 0"}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s\n%v", diff, w.phases())
		}
		if n := w.notice("p1-second"); n.Status.Sequence != 1 || n.Status.Phase != v1alpha1.NoticeSent {
			t.Errorf("p1-second: %v", n.Status)
		}
	})
}

// The SEQUENCE goes on rising when the Notices of 13 months ago are taken away.
func TestSequenceSurvivesRetention(t *testing.T) {
	var all []v1alpha1.Notice
	last := -1
	for year := range 6 {
		n := *notice(func(n *v1alpha1.Notice) {
			n.Name = fmt.Sprint("year-", year)
			n.Spec.Subject = &v1alpha1.ObjectReference{Kind: "Project", Name: "long"}
			n.CreationTimestamp = metav1.NewTime(later.Machine.AddDate(year, 0, 0))
			n.Spec.Deadline = &metav1.Time{Time: later.Policy.AddDate(year+1, 0, 0)}
		})
		all = append(all, n)
		got := Sequence(&all[len(all)-1], all)
		if got <= last {
			t.Errorf("year %d: %d after %d", year, got, last)
		}
		last = got
		all[len(all)-1].Status.Sequence = int32(got) //nolint:gosec // six
		all = all[max(0, len(all)-2):]
	}
}
