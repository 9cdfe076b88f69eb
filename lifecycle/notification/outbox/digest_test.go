// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
)

// recordExpiring records a project's warning for the last digest at the lead before its end.
func (w *testEnv) recordExpiring(
	name, project string, digests *notification.DigestSchedule, lead string, deadline time.Time, address v1alpha1.EmailAddress,
) {
	w.t.Helper()
	length := period.MustParseDuration(lead)
	due, on, found := digests.LastRun(deadline.Add(-length.Length()))
	if !found {
		w.t.Fatal("no digest")
	}
	w.recordNotice(name, asWarning(project, lead, due, deadline), func(n *v1alpha1.Notice) {
		n.Spec.Kind, n.Spec.Digest, n.Spec.Recipient.Email = v1alpha1.NoticeProjectExpiring, notification.DigestName(address, on), address
	})
}

func newDigestSchedule(t testing.TB, schedule string) *notification.DigestSchedule {
	t.Helper()
	d, err := notification.ParseDigestSchedule(v1alpha1.NoticeTerms{Digest: schedule, TimeZone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parseLocalTime(t testing.TB, text string) time.Time {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.ParseInLocation("2006-01-02 15:04", text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Notices of several departments to one person on one day are one mail.
func TestOneDigestPerRecipientAndDay(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.clock.line = policytime.Timeline{
			Segments: []policytime.Segment{{Real: time.Now().Add(-time.Hour), Policy: parseLocalTime(t, "2026-03-02 05:00"), Scale: 1}},
		}
		w.advance(time.Minute)
		eight := newDigestSchedule(t, "0 8 * * *")
		for _, project := range []string{"p1", "p2"} {
			w.recordExpiring(project, project, eight, "7d", parseLocalTime(t, "2026-03-09 12:00"), "anna@example.org")
		}
		w.recordExpiring("of-ben", "p1", eight, "7d", parseLocalTime(t, "2026-03-09 12:00"), "ben@example.org")
		w.advance(90 * time.Minute)
		if len(w.mails) != 0 {
			t.Fatalf("before eight: %v", w.mails)
		}
		w.advance(2 * time.Hour)
		day := period.MustParseDate("2026-03-02")
		annas, bens := notification.DigestName("anna@example.org", day), notification.DigestName("ben@example.org", day)
		if diff := cmp.Diff(map[string]int{annas: 1, bens: 1}, w.sentCounts()); diff != "" {
			t.Fatal(diff)
		}
		for _, m := range w.mails {
			if m.to == "anna@example.org" &&
				(!strings.Contains(m.body, "carries p1 text of p1") || !strings.Contains(m.body, "carries p2 text of p2")) {
				t.Errorf("anna's: %s", m.body)
			}
		}
		digest, member := w.getNotice(annas), w.getNotice("p1")
		if diff := cmp.Diff(day, *digest.Spec.Date); diff != "" {
			t.Error(diff)
		}
		want := v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSent, MessageID: digest.Status.MessageID, SentAt: digest.Status.SentAt}
		if diff := cmp.Diff(want, member.Status); diff != "" {
			t.Error(diff)
		}
		w.recordExpiring("too-late", "p3", eight, "7d", parseLocalTime(t, "2026-03-09 12:00"), "anna@example.org")
		w.advance(time.Hour)
		if diff := cmp.Diff(map[string]int{annas: 1, bens: 1, "too-late": 1}, w.sentCounts()); diff != "" {
			t.Error(diff)
		}
	})
}

// A failed digest fails its Notices, so administrators see it.
func TestFailedDigestFailsCarriedNotices(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.respond = func(string, int) (error, bool) { return newFailure(RecipientFailure, "550 no such user"), false }
		now := w.clock.Now()
		w.recordNotice("p1", asWarning("p1", "7d", now, now.Add(7*24*time.Hour)), func(n *v1alpha1.Notice) { n.Spec.Digest = "digest" })
		w.advance(time.Hour)
		want := map[string]string{"p1": "Failed: 550 no such user", "digest": "Failed: 550 no such user"}
		if diff := cmp.Diff(want, w.phases()); diff != "" {
			t.Error(diff)
		}
	})
}

// A warning that was withdrawn while its digest could not be sent is not sent with it: a renewed project has another end.
// A digest without any other message is not sent. Guards invariant 11 of the design.
func TestDigestLeavesOutWithdrawnNotices(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		w.respond = func(_ string, n int) (error, bool) {
			if n < 2 {
				return newFailure(TemporaryFailure, "451 try again later"), false
			}
			return nil, true
		}
		now := w.clock.Now()
		for name, digest := range map[string]string{"p1": "some", "p2": "some", "p3": "all"} {
			w.recordNotice(name, asWarning(name, "7d", now, now.Add(7*24*time.Hour)), func(n *v1alpha1.Notice) { n.Spec.Digest = digest })
		}
		w.advance(time.Minute)
		for _, name := range []string{"p1", "p3"} {
			n := w.getNotice(name)
			n.Status.Phase, n.Status.LastError = v1alpha1.NoticeSuperseded, "the deadline has changed"
			if err := w.raw.Status().Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		w.advance(2 * time.Hour)
		want := map[string]string{
			"p1": "Superseded: the deadline has changed", "p2": "Sent", "p3": "Superseded: the deadline has changed",
			"some": "Sent", "all": "Superseded: all its messages were withdrawn",
		}
		if diff := cmp.Diff(want, w.phases()); diff != "" {
			t.Error(diff)
		}
		if len(w.mails) != 1 || strings.Contains(w.mails[0].body, "p1") || !strings.Contains(w.mails[0].body, "carries p2") {
			t.Errorf("mails: %+v", w.mails)
		}
	})
}

// Contacts get no mail of a request that was deleted before, also if another Extension has its name now, and one mail of
// the others that are bundled. Sent ones can be sent again.
func TestWithdrawnRequestsAreNotSent(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		names := []string{"alone", "alone-gone", "renamed", "bundled", "bundled-gone", "gone-1", "gone-2"}
		bundles := map[string]string{"bundled": "some", "bundled-gone": "some", "gone-1": "all", "gone-2": "all"}
		extensions := map[string]*v1alpha1.Extension{}
		for _, name := range names {
			e := &v1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name}}
			if err := createObject(t.Context(), w.raw, e); err != nil {
				t.Fatal(err)
			}
			extensions[name] = e
			w.recordNotice(name, func(n *v1alpha1.Notice) {
				n.Spec.Kind, n.Spec.Digest = v1alpha1.NoticeExtensionRequested, bundles[name]
				n.Spec.Subject.Kind, n.Spec.Subject.UID = "Extension", e.UID
				if name == "renamed" {
					n.Spec.Subject.UID = "of-a-former-extension"
				}
			})
		}
		withdraw := func(names ...string) {
			for _, name := range names {
				if err := w.raw.Delete(t.Context(), extensions[name]); err != nil {
					t.Fatal(err)
				}
			}
		}
		withdraw("alone-gone", "bundled-gone", "gone-1", "gone-2")
		w.advance(time.Hour)
		const withdrawn = "Superseded: the request was withdrawn"
		want := map[string]string{
			"alone": "Sent", "alone-gone": withdrawn, "renamed": withdrawn, "bundled": "Sent", "bundled-gone": withdrawn,
			"gone-1": withdrawn, "gone-2": withdrawn, "some": "Sent", "all": "Superseded: all its messages were withdrawn",
		}
		if diff := cmp.Diff(want, w.phases()); diff != "" {
			t.Error(diff)
		}
		withdraw("alone")
		n := w.getNotice("alone")
		n.Annotations = map[string]string{v1alpha1.AnnotationResend: time.Now().UTC().Format(time.RFC3339)}
		if err := w.raw.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		w.advance(time.Minute)
		if diff := cmp.Diff(map[string]int{"alone": 2, "some": 1}, w.sentCounts()); diff != "" {
			t.Errorf("mails (-want +got):\n%s", diff)
		}
	})
}

// Invariants 5 and 6 over years, with summer time, steps of policy time and restarts: each warning is
// sent or replaced by a later one, each day has at most one digest, and none is sent early.
func TestDigestInvariantsOverYears(t *testing.T) {
	for _, schedule := range []string{"0 8 * * *", "30 2 * * *", "0 9 * * 1-5"} {
		t.Run(schedule, func(t *testing.T) {
			inTestEnv(t, func(w *testEnv) {
				w.clock.line = policytime.Timeline{
					Segments: []policytime.Segment{{Real: time.Now().Add(-time.Hour), Policy: parseLocalTime(t, "2026-03-20 00:00"), Scale: 1}},
				}
				w.advance(time.Minute)
				digests := newDigestSchedule(t, schedule)
				until := parseLocalTime(t, "2027-04-05 00:00")
				var past []v1alpha1.Notice
				for i := 0; w.clock.Now().Before(until); i++ {
					// Sometimes lifecycle is down for days and restarts.
					step := 19 * time.Hour
					switch {
					case i%60 == 59:
						step = 9 * 24 * time.Hour
						w.restart()
					case i%7 == 6:
						step = 50 * time.Hour
					}
					if i%10 == 9 {
						past = append(past, w.deleteExpired()...)
					}
					deadline := w.clock.Now().Add(8 * 24 * time.Hour).Truncate(time.Hour)
					for _, lead := range []string{"7d", "1d"} {
						name := fmt.Sprintf("p%03d-%s", i, lead)
						w.recordExpiring(name, fmt.Sprintf("p%03d", i), digests, lead, deadline, "anna@example.org")
					}
					w.advance(time.Minute)
					var err error
					if w.clock.line, err = w.clock.line.WithStep(step, time.Now()); err != nil {
						t.Fatal(err)
					}
					w.advance(time.Minute)
				}
				w.clock.line, _ = w.clock.line.WithStep(30*24*time.Hour, time.Now())
				w.advance(10 * time.Minute)
				w.checkInvariants(t, append(past, w.listNotices()...))
			})
		})
	}
}

// deleteExpired deletes finished Notices to keep the test fast.
func (w *testEnv) deleteExpired() (deleted []v1alpha1.Notice) {
	w.t.Helper()
	for _, n := range w.listNotices() {
		if !isFinished(&n) || !n.Spec.DueAt.Time.Before(w.clock.Now().AddDate(0, 0, -3)) {
			continue
		}
		deleted = append(deleted, n)
		if err := w.raw.Delete(w.t.Context(), &n); err != nil {
			w.t.Fatal(err)
		}
	}
	return deleted
}

// checkInvariants checks the outcome of warnings and digests.
func (w *testEnv) checkInvariants(t *testing.T, all []v1alpha1.Notice) {
	t.Helper()
	days, sent := map[string]int{}, w.sentCounts()
	newest := map[warningKey]time.Time{}
	for i := range all {
		if key, warns := warningKeyOf(&all[i]); warns && all[i].Status.Phase == v1alpha1.NoticeSent && all[i].Spec.DueAt.After(newest[key]) {
			newest[key] = all[i].Spec.DueAt.Time
		}
	}
	for i := range all {
		n := &all[i]
		switch {
		case n.Spec.Kind == v1alpha1.NoticeDigest:
			days[n.Spec.Date.String()]++
			if sent[n.Name] != 1 {
				t.Errorf("%s was sent %d times", n.Name, sent[n.Name])
			}
		case n.Status.Phase == v1alpha1.NoticeSuperseded:
			key, _ := warningKeyOf(n)
			if !n.Spec.DueAt.Time.Before(newest[key]) {
				t.Errorf("%s was superseded and nothing replaced it", n.Name)
			}
		case n.Status.Phase != v1alpha1.NoticeSent:
			t.Errorf("%s: %s %s", n.Name, n.Status.Phase, n.Status.LastError)
		}
		if n.Status.SentAt != nil && n.Status.SentAt.Before(&n.Spec.DueAt) {
			t.Errorf("%s was due at %v and sent at %v", n.Name, n.Spec.DueAt, n.Status.SentAt)
		}
	}
	if len(days) < 100 {
		t.Errorf("only %d digests", len(days))
	}
	for on, digests := range days {
		if digests != 1 {
			t.Errorf("%d digests on %s", digests, on)
		}
	}
}

// A day without the hour has no digest; a day with the hour twice has one.
func TestDigestScheduleDaylightSaving(t *testing.T) {
	half := newDigestSchedule(t, "30 2 * * *")
	if run, ok := half.RunOn(period.MustParseDate("2026-03-29")); ok {
		t.Errorf("29 March has no 02:30; found %v", run)
	}
	run, ok := half.RunOn(period.MustParseDate("2026-10-25"))
	if want := parseLocalTime(t, "2026-10-25 00:00").Add(150 * time.Minute); !ok || !run.Equal(want) {
		t.Errorf("25 October has it at %v; found %v", want, run)
	}
	last, on, found := half.LastRun(parseLocalTime(t, "2026-03-29 12:00"))
	if want := parseLocalTime(t, "2026-03-28 02:30"); !found || !last.Equal(want) || on != period.MustParseDate("2026-03-28") {
		t.Errorf("the last by the 29th: %v (%v); want %v", last, on, want)
	}
	if _, _, found := newDigestSchedule(t, "0 8 30 2 *").LastRun(parseLocalTime(t, "2026-03-29 12:00")); found {
		t.Error("30 February was found")
	}
	if last, _, found := newDigestSchedule(t, "0 8 29 2 *").LastRun(parseLocalTime(t, "2027-03-29 12:00")); !found ||
		!last.Equal(parseLocalTime(t, "2024-02-29 08:00")) {
		t.Errorf("the last 29 February: %v", last)
	}
}

// Finished Notices about workloads are deleted after 30 days, the others after 13 months, in policy
// time and in batches; unfinished ones of any age stay.
func TestRetentionDeletesExpiredNotices(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		for i := range 450 {
			w.recordNotice(fmt.Sprintf("n%03d", i))
		}
		for i := range 3 {
			w.recordNotice(fmt.Sprint("project-", i), func(n *v1alpha1.Notice) {
				n.Spec.Kind, n.Spec.Subject = v1alpha1.NoticeProjectExpired, &v1alpha1.ObjectReference{Kind: "Project", Name: "lab"}
			})
		}
		w.advance(2 * time.Hour)
		w.recordNotice("waits")
		r := &Retention{Client: w.processes[0].Client, Clock: w.clock}
		sweep := func() (left int) {
			for more := true; more; {
				before := len(w.listNotices())
				var err error
				if more, err = r.deleteExpired(t.Context()); err != nil {
					t.Fatal(err)
				}
				if deleted := before - len(w.listNotices()); deleted > retentionBatchSize {
					t.Errorf("%d at once", deleted)
				}
			}
			return len(w.listNotices())
		}
		for _, step := range []struct{ days, left int }{
			{29, 454},
			{1, 4},
			{364, 4}, // 13 months have 395 to 398 days
			{5, 1},
		} {
			w.clock.line, _ = w.clock.line.WithStep(time.Duration(step.days)*24*time.Hour, time.Now())
			if left := sweep(); left != step.left {
				t.Errorf("%d left after %d more days, want %d", left, step.days, step.left)
			}
		}
	})
}

// A run reads the Notices whose retention ended or ends today, not all. A Notice that is finished
// after its retention ended is deleted too.
func TestRetentionReadsEndedDays(t *testing.T) {
	inTestEnv(t, func(w *testEnv) {
		const notices = 50
		for i := range notices {
			w.recordNotice(fmt.Sprintf("n%03d", i))
		}
		w.advance(2 * time.Hour)
		w.recordNotice("late")
		r := &Retention{Client: w.processes[0].Client, Clock: w.clock}
		run := func(days, wantRead, wantLeft int) {
			t.Helper()
			w.clock.line, _ = w.clock.line.WithStep(time.Duration(days)*24*time.Hour, time.Now())
			w.cache.read.Store(0)
			if _, err := r.deleteExpired(t.Context()); err != nil {
				t.Fatal(err)
			}
			if read, left := int(w.cache.read.Load()), len(w.listNotices()); read != wantRead || left != wantLeft {
				t.Errorf("%d notices were read and %d are left, want %d and %d", read, left, wantRead, wantLeft)
			}
		}
		run(0, 0, notices+1)
		run(1, 0, notices+1)
		run(20, 0, notices+1)
		run(10, notices+1, 1)
		run(30, 1, 1)
		late := w.getNotice("late")
		late.Status.Phase = v1alpha1.NoticeFailed
		if err := w.raw.Status().Update(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		run(1, 1, 0)
		run(1, 0, 0)
	})
}
