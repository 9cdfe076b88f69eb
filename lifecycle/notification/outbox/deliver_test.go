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

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// An administrator deletes the ConfigMap to resume mail. Notices of any age that waited in the pause
// are sent.
func TestMailStateConfigMapDeleted(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.recordNotice("first")
		w.advance(time.Minute)
		state := w.stateConfigMap()
		state.Data[MailStatePausedKey] = "true"
		if err := w.raw.Update(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		w.recordNotice("in-the-pause")
		w.advance(3 * 24 * time.Hour)
		if err := w.raw.Delete(t.Context(), w.stateConfigMap()); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.advance(10 * time.Minute)
		if diff := cmp.Diff(map[string]int{"first": 1, "in-the-pause": 1}, w.sentCounts()); diff != "" {
			t.Errorf("(-want +got)\n%s\n%v", diff, w.phases())
		}
	})
}

// The Secret changes while mails are being sent with the old password: they are sent with the new
// one, and mail does not pause.
func TestCredentialsRotatedDuringSend(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.advance(time.Minute)
		w.respond = func(string, int) (error, bool) {
			if w.fingerprint == "first" {
				w.fingerprint = "second" // changes when this one is refused
				return &Failure{Kind: ConfigurationFailure, Err: errors.New("535 wrong password")}, false
			}
			if len(w.mails) == 0 && w.tries < maxConcurrentSends { // concurrent mails had the old one, too
				return &Failure{Kind: ConfigurationFailure, Err: errors.New("535 wrong password")}, false
			}
			return nil, true
		}
		want := map[string]int{}
		for i := range 6 {
			name := fmt.Sprint("n", i)
			want[name] = 1
			w.recordNotice(name)
		}
		w.advance(10 * time.Minute)
		if diff := cmp.Diff(want, w.sentCounts()); diff != "" {
			t.Errorf("(-want +got)\n%s\n%v\n%v", diff, w.phases(), w.stateConfigMap().Data)
		}
		if ParseMailState(w.stateConfigMap()).Paused {
			t.Errorf("mail is paused: %v", w.stateConfigMap().Data)
		}
		// A second invalid configuration pauses mail.
		w.respond = func(string, int) (error, bool) {
			return &Failure{Kind: ConfigurationFailure, Err: errors.New("535 wrong password")}, false
		}
		w.recordNotice("later")
		w.advance(10 * time.Minute)
		if state := ParseMailState(w.stateConfigMap()); !state.Paused || state.FailedConfiguration != "second" {
			t.Errorf("%v", w.stateConfigMap().Data)
		}
	})
}

// The server shuts down on each attempt of one mail. Other mails are delayed by moments only.
func TestServerClosesForOneMail(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		tries := 0
		w.respond = func(to string, _ int) (error, bool) {
			if to == "mallory@example.org" {
				tries++
				return &Failure{Kind: ServerFailure, AfterRecipient: true, Err: errors.New("421 4.7.0 closing")}, false
			}
			return nil, true
		}
		w.recordNotice("a-poison", toRecipient("mallory@example.org"), func(n *v1alpha1.Notice) { n.Spec.Deadline = &n.Spec.DueAt })
		want := map[string]int{}
		for i := range 20 {
			w.advance(30 * time.Second)
			name := fmt.Sprint("n", i)
			want[name] = 1
			w.recordNotice(name)
		}
		w.advance(time.Minute)
		if diff := cmp.Diff(want, w.sentCounts()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		w.advance(24 * time.Hour)
		if tries < 8 || tries > 24 {
			t.Errorf("tried %d times in a day", tries)
		}
		n := w.getNotice("a-poison")
		if n.Status.Phase != v1alpha1.NoticePending || n.Status.Attempts < 8 {
			t.Errorf("it is %s, tried %d times", n.Status.Phase, n.Status.Attempts)
		}
	})
}

// A digest created by a user never carries Notices of other recipients.
func TestManualDigestCarriesNoForeignNotices(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		day := period.MustParseDate("2026-03-02")
		w.recordNotice("annas", func(n *v1alpha1.Notice) { n.Status.Phase = v1alpha1.NoticeSent })
		w.recordNotice("digest-by-hand", toRecipient("mallory@example.org"), func(n *v1alpha1.Notice) {
			n.Spec.Kind, n.Spec.Subject, n.Spec.Date = v1alpha1.NoticeDigest, nil, &day
			n.Spec.Inputs = map[string]string{InputCarriedNotices: "annas,gone"}
		})
		w.advance(time.Hour)
		for _, m := range w.mails {
			if m.to == "mallory@example.org" {
				t.Errorf("mallory receives: %s", m.body)
			}
		}
		if n := w.getNotice("digest-by-hand"); n.Status.Phase != v1alpha1.NoticeFailed {
			t.Errorf("the digest is %v", n.Status)
		}
	})
}

// A Test comes before all others, is in no digest, and is due at once.
func TestTestNoticeSentFirst(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.rates = Rates{PerMinute: 4}
		w.restart()
		w.advance(time.Minute)
		for i := range 40 {
			w.recordNotice(fmt.Sprintf("n%02d", i), func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(w.clock.Now().Add(-time.Hour)) })
		}
		w.advance(time.Minute)
		before := len(w.mails)
		w.recordNotice("test-x", func(n *v1alpha1.Notice) {
			n.Spec.Kind, n.Spec.Subject, n.Spec.Inputs, n.Spec.Digest = v1alpha1.NoticeTest, nil, nil, "digest-of-anna"
			n.Spec.DueAt = metav1.NewTime(w.clock.Now().AddDate(3, 0, 0))
		})
		w.advance(time.Minute)
		if len(w.mails) > before+5 {
			t.Errorf("%d mails in a minute", len(w.mails)-before)
		}
		if !slices.ContainsFunc(w.mails[before:], func(m sentMail) bool { return m.id == "<test-x@example.org>" }) {
			t.Errorf("the test waits: %v", w.phases()["test-x"])
		}
	})
}

// A Test that could not be tried for a day is superseded, unless its resending is requested.
func TestOldTestNoticeSuperseded(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		state := w.stateConfigMap()
		state.Namespace, state.Name, state.Data = mailStateObjectKey.Namespace, mailStateObjectKey.Name, map[string]string{
			MailStatePausedKey: "true",
		}
		if err := w.raw.Create(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		w.recordNotice("test-x", func(n *v1alpha1.Notice) { n.Spec.Kind, n.Spec.Subject, n.Spec.Inputs = v1alpha1.NoticeTest, nil, nil })
		w.advance(26 * time.Hour)
		if n := w.getNotice("test-x"); n.Status.Phase != v1alpha1.NoticeSuperseded {
			t.Fatalf("it is %v", n.Status)
		}
		state = w.stateConfigMap()
		delete(state.Data, MailStatePausedKey)
		if err := w.raw.Update(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		n := w.getNotice("test-x")
		n.Annotations = map[string]string{v1alpha1.AnnotationResend: time.Now().Format(time.RFC3339)}
		if err := w.raw.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		w.advance(time.Hour)
		if n := w.getNotice("test-x"); n.Status.Phase != v1alpha1.NoticeSent {
			t.Errorf("it is %v", n.Status)
		}
	})
}

// A deadline that moved between two digests has a higher SEQUENCE in the second; an unchanged one
// keeps its own.
func TestSequenceDeadlineMovedBetweenDigests(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.clock.line = policytime.Timeline{
			Segments: []policytime.Segment{{Real: time.Now().Add(-time.Hour), Policy: parseLocalTime(t, "2026-03-02 05:00"), Scale: 1}},
		}
		eight := newDigestSchedule(t, "0 8 * * *")
		w.recordExpiring("p1-first", "p1", eight, "7d", parseLocalTime(t, "2026-03-09 12:00"), "anna@example.org")
		w.recordExpiring("p2-first", "p2", eight, "7d", parseLocalTime(t, "2026-03-09 12:00"), "anna@example.org")
		w.advance(5 * time.Hour)
		w.recordExpiring("p1-second", "p1", eight, "6d", parseLocalTime(t, "2026-03-10 12:00"), "anna@example.org")
		w.recordExpiring("p2-second", "p2", eight, "6d", parseLocalTime(t, "2026-03-09 12:00"), "anna@example.org")
		w.advance(48 * time.Hour)
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
		if n := w.getNotice("p1-second"); n.Status.Sequence != 1 || n.Status.Phase != v1alpha1.NoticeSent {
			t.Errorf("p1-second: %v", n.Status)
		}
	})
}

// The SEQUENCE keeps rising after old Notices are deleted.
func TestSequenceSurvivesRetention(t *testing.T) {
	var all []v1alpha1.Notice
	last := -1
	for year := range 6 {
		n := *newNotice(func(n *v1alpha1.Notice) {
			n.Name = fmt.Sprint("year-", year)
			n.Spec.Subject = &v1alpha1.ObjectReference{Kind: "Project", Name: "long"}
			n.CreationTimestamp = metav1.NewTime(testInstant.Machine.AddDate(year, 0, 0))
			n.Spec.Deadline = &metav1.Time{Time: testInstant.Policy.AddDate(year+1, 0, 0)}
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

// Many mails are sent in one batch, as fast as the mail server accepts them; an urgent Notice waits
// for one batch at most.
func TestSendQueueThroughput(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.advance(time.Minute)
		const many = 2000 // the mail server needs 10 ms for each, four at a time
		for i := range many {
			w.recordNotice(fmt.Sprintf("n%04d", i), toRecipient(v1alpha1.EmailAddress(fmt.Sprintf("u%d@example.org", i))))
		}
		w.recordNotice("urgent", func(n *v1alpha1.Notice) {
			n.Spec.DueAt = metav1.NewTime(time.Now().Add(w.limits.SettleDelay + time.Second))
			n.Spec.Deadline = &metav1.Time{Time: n.Spec.DueAt.Add(time.Minute)}
		})
		urgent := w.getNotice("urgent")
		w.advance(w.limits.SettleDelay + 6*time.Second)
		if len(w.sentCounts()) != many+1 || len(w.mails) != many+1 {
			t.Fatalf("%d mails, %d different, within 6 s; want %d", len(w.mails), len(w.sentCounts()), many+1)
		}
		for _, m := range w.mails {
			if late := m.at.Sub(urgent.Spec.DueAt.Time); m.id == "<urgent@example.org>" && late > sendBatchDuration+time.Second {
				t.Errorf("the urgent notice waited %s", late)
			}
		}
	})
}
