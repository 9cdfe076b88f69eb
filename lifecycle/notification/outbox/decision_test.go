// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	noticemail "sluice.dev/lifecycle/notification/mail"
)

// noon is the present of the tables in machine time; policy time is three years ahead, as in an
// embedded cluster.
var (
	noon        = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	testInstant = Instant{Machine: noon, Policy: noon.AddDate(3, 0, 0)}
)

// newNotice returns a Notice recorded and due an hour ago.
func newNotice(change ...func(*v1alpha1.Notice)) *v1alpha1.Notice {
	n := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Spec: v1alpha1.NoticeSpec{
			Recipient: v1alpha1.NoticeRecipient{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}},
			Kind:      v1alpha1.NoticeWorkloadEnding, DueAt: metav1.NewTime(testInstant.Policy.Add(-time.Hour)),
			Subject: &v1alpha1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "lab", Name: "train"},
		},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func atOffset(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }

func withPhase(p v1alpha1.NoticePhase) func(*v1alpha1.Notice) {
	return func(n *v1alpha1.Notice) { n.Status.Phase = p }
}

// Invariants 5, 6 and 8: due Notices are sent, expired claims are taken over, and Notices that are
// not sent record why.
func TestDecide(t *testing.T) {
	limits := DefaultLimits()
	claim := func(ago time.Duration, attempts int32) func(*v1alpha1.Notice) {
		return func(n *v1alpha1.Notice) {
			n.Status = v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSending, ClaimedBy: "other", ClaimedAt: atOffset(-ago), Attempts: attempts}
		}
	}
	resend := func(ago time.Duration) func(*v1alpha1.Notice) {
		return func(n *v1alpha1.Notice) {
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: noon.Add(-ago).Format(time.RFC3339)}
		}
	}
	inDigest := func(n *v1alpha1.Notice) { n.Spec.Digest = "digest" }
	digest := func(p v1alpha1.NoticePhase, carries string) *v1alpha1.Notice {
		return newNotice(withPhase(p), func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Kind, n.Spec.Inputs = "digest", v1alpha1.NoticeDigest, map[string]string{InputCarriedNotices: carries}
		})
	}
	tests := map[string]struct {
		notice *v1alpha1.Notice
		around NoticeContext
		want   Decision
	}{
		"due": {notice: newNotice(), want: Decision{Action: ActionSend}},
		"due, early": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(testInstant.Policy.Add(time.Hour)) }),
			want:   Decision{Action: ActionWait, RecheckPolicyAt: testInstant.Policy.Add(time.Hour)},
		},
		"just recorded": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.CreationTimestamp = *atOffset(-time.Second) }),
			want:   Decision{Action: ActionWait, RecheckAt: noon.Add(4 * time.Second)},
		},
		"recorded by a clock ahead": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.CreationTimestamp = *atOffset(time.Hour) }), want: Decision{Action: ActionSend},
		},
		"sent":       {notice: newNotice(withPhase(v1alpha1.NoticeSent)), want: Decision{Action: ActionNone}},
		"failed":     {notice: newNotice(withPhase(v1alpha1.NoticeFailed)), want: Decision{Action: ActionNone}},
		"superseded": {notice: newNotice(withPhase(v1alpha1.NoticeSuperseded)), want: Decision{Action: ActionNone}},
		"waits for a retry": {
			notice: newNotice(
				func(n *v1alpha1.Notice) { n.Status.RetryAt = atOffset(time.Minute) },
			), want: Decision{Action: ActionWait, RecheckAt: noon.Add(time.Minute)},
		},
		"a retry in a year from a wrong clock": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.Status.RetryAt = atOffset(365 * 24 * time.Hour) }), want: Decision{Action: ActionSend},
		},
		"too many attempts": {
			notice: newNotice(
				func(n *v1alpha1.Notice) { n.Status.Attempts = 35 },
			), want: Decision{Action: ActionGiveUp, Reason: "too many attempts"},
		},
		"claimed by another": {
			notice: newNotice(claim(time.Minute, 1)), want: Decision{Action: ActionWait, RecheckAt: noon.Add(7 * time.Minute)},
		},
		"an expired claim":      {notice: newNotice(claim(limits.ClaimLease, 1)), want: Decision{Action: ActionSend}},
		"a claim in the future": {notice: newNotice(claim(-time.Hour, 1)), want: Decision{Action: ActionSend}},
		"every attempt crashes": {
			notice: newNotice(claim(time.Hour, 35)), want: Decision{Action: ActionGiveUp, Reason: "each attempt ended without a result"},
		},
		"resend requested": {
			notice: newNotice(withPhase(v1alpha1.NoticeSent), resend(time.Minute)), want: Decision{Action: ActionSend},
		},
		"resend requested, failed since": {
			notice: newNotice(claim(time.Second, 1), withPhase(v1alpha1.NoticeSent), resend(time.Minute)), want: Decision{Action: ActionNone},
		},
		"resend requested in a minute": {
			notice: newNotice(withPhase(v1alpha1.NoticeFailed), resend(-time.Minute)),
			want:   Decision{Action: ActionWait, RecheckAt: noon.Add(time.Minute)},
		},
		"resend with an invalid time": {
			notice: newNotice(
				withPhase(v1alpha1.NoticeSent), func(n *v1alpha1.Notice) { n.Annotations = map[string]string{v1alpha1.AnnotationResend: "now"} },
			),
			want: Decision{Action: ActionNone},
		},
		"a later one replaces it": {
			notice: newNotice(), around: NoticeContext{HasNewer: true},
			want: Decision{Action: ActionSupersede, Reason: "a later warning replaces it"},
		},
		"muted": {
			notice: newNotice(func(n *v1alpha1.Notice) {
				n.Spec.Kind, n.Spec.Recipient.Mute = v1alpha1.NoticeShareExceeded, []v1alpha1.OptionalNoticeKind{"ShareExceeded"}
			}),
			want: Decision{Action: ActionSupersede, Reason: "the recipient muted mail of this kind"},
		},
		"muted, but it announces an eviction": {
			notice: newNotice(func(n *v1alpha1.Notice) {
				n.Spec.Kind, n.Spec.Recipient.Mute = v1alpha1.NoticeShareExceeded, []v1alpha1.OptionalNoticeKind{"ShareExceeded"}
				n.Spec.Deadline = &metav1.Time{Time: testInstant.Policy.Add(5 * time.Minute)}
			}),
			want: Decision{Action: ActionSend},
		},
		"another kind is muted": {
			notice: newNotice(
				func(n *v1alpha1.Notice) { n.Spec.Recipient.Mute = []v1alpha1.OptionalNoticeKind{"ShareExceeded"} },
			), want: Decision{Action: ActionSend},
		},
		"obsolete before mail was configured": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(testInstant.Policy.Add(-48 * time.Hour)) }),
			around: NoticeContext{
				MailEnabledAt: testInstant.Policy,
			}, want: Decision{Action: ActionSupersede, Reason: "it was obsolete before mail was configured"},
		},
		"a future deadline from before mail was configured": {
			notice: newNotice(func(n *v1alpha1.Notice) {
				n.Spec.DueAt = metav1.NewTime(testInstant.Policy.Add(-48 * time.Hour))
				n.Spec.Deadline = &metav1.Time{Time: testInstant.Policy.Add(time.Hour)}
			}),
			around: NoticeContext{MailEnabledAt: testInstant.Policy}, want: Decision{Action: ActionSend},
		},
		"a digest that does not exist yet": {notice: newNotice(inDigest), want: Decision{Action: ActionAwaitDigest}},
		"for a digest, a later one replaces it": {
			notice: newNotice(inDigest), around: NoticeContext{HasNewer: true},
			want: Decision{Action: ActionSupersede, Reason: "a later warning replaces it"},
		},
		"in a pending digest": {
			notice: newNotice(inDigest), around: NoticeContext{Digest: digest("", "m,n")}, want: Decision{Action: ActionWait},
		},
		"in a sent digest": {
			notice: newNotice(inDigest), around: NoticeContext{Digest: digest(v1alpha1.NoticeSent, "m,n")},
			want: Decision{Action: ActionFollowDigest},
		},
		"in a failed digest": {
			notice: newNotice(inDigest), around: NoticeContext{Digest: digest(v1alpha1.NoticeFailed, "n")},
			want: Decision{Action: ActionFollowDigest},
		},
		"too late for its digest": {
			notice: newNotice(inDigest), around: NoticeContext{Digest: digest(v1alpha1.NoticeSent, "m")}, want: Decision{Action: ActionSend},
		},
		"in a superseded digest": {
			notice: newNotice(inDigest), around: NoticeContext{Digest: digest(v1alpha1.NoticeSuperseded, "n")},
			want: Decision{Action: ActionSend},
		},
		"a digest of another recipient": {
			notice: newNotice(inDigest),
			around: NoticeContext{Digest: func() *v1alpha1.Notice { d := digest("", "n"); d.Spec.Recipient.Email = "ben@example.org"; return d }()},
			want:   Decision{Action: ActionSend},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(testInstant, tc.notice, tc.around, limits)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// drawNotice draws a Notice with times around the present.
func drawNotice() *rapid.Generator[*v1alpha1.Notice] {
	return rapid.Custom(func(t *rapid.T) *v1alpha1.Notice {
		span := rapid.Int64Range(-3*int64(time.Hour), 3*int64(time.Hour))
		instant := func(label string, around time.Time) metav1.Time {
			return metav1.NewTime(around.Add(time.Duration(span.Draw(t, label))).Truncate(time.Second))
		}
		maybe := func(label string, around time.Time) *metav1.Time {
			if !rapid.Bool().Draw(t, label+" set") {
				return nil
			}
			at := instant(label, around)
			return &at
		}
		n := newNotice()
		n.Name = rapid.StringMatching(`[a-z]{1,6}`).Draw(t, "name")
		n.CreationTimestamp = instant("created", noon)
		n.Spec.DueAt = instant("due", testInstant.Policy)
		n.Spec.Deadline = maybe("deadline", testInstant.Policy)
		n.Spec.Kind = rapid.SampledFrom([]v1alpha1.NoticeKind{
			v1alpha1.NoticeWorkloadEnding, v1alpha1.NoticeShareExceeded, v1alpha1.NoticeWorkloadStopped,
		}).
			Draw(t, "kind")
		if rapid.Bool().Draw(t, "lead") {
			lead := rapid.SampledFrom([]period.Duration{
				period.MustParseDuration("30m"), period.MustParseDuration("4h"), period.MustParseDuration("24h"),
			}).
				Draw(t, "which lead")
			n.Spec.Lead = &lead
		}
		if rapid.Bool().Draw(t, "mutes") {
			n.Spec.Recipient.Mute = []v1alpha1.OptionalNoticeKind{"ShareExceeded"}
		}
		if requested := maybe("resend", noon); requested != nil {
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: requested.Format(time.RFC3339)}
		}
		n.Status = v1alpha1.NoticeStatus{
			Phase: rapid.SampledFrom([]v1alpha1.NoticePhase{
				"", v1alpha1.NoticePending, v1alpha1.NoticeSending, v1alpha1.NoticeSent, v1alpha1.NoticeFailed, v1alpha1.NoticeSuperseded,
			}).
				Draw(t, "phase"),
			Attempts: rapid.Int32Range(0, 40).
				Draw(t, "attempts"),
			ClaimedAt: maybe("claimed", noon), RetryAt: maybe("retry", noon), SentAt: maybe("sent", testInstant.Policy),
		}
		return n
	})
}

// Invariants 5 and 6: no Notice is sent before it is due, muting never supersedes a mandatory kind,
// valid claims are respected, and every waiting Notice is decided again and finishes.
func TestDecideReachesFinalPhase(t *testing.T) {
	limits := DefaultLimits()
	rapid.Check(t, func(t *rapid.T) {
		n, now := drawNotice().Draw(t, "notice"), testInstant
		before := n.DeepCopy()
		for range 50 {
			d := Decide(now, n, NoticeContext{}, limits)
			if diff := cmp.Diff(d, Decide(now, n, NoticeContext{}, limits)); diff != "" {
				t.Fatalf("two decisions differ: %s", diff)
			}
			if diff := cmp.Diff(before, n); diff != "" {
				t.Fatalf("Decide changed the notice: %s", diff)
			}
			fresh := n.Status.Phase == v1alpha1.NoticeSending && n.Status.ClaimedAt != nil &&
				now.Machine.Sub(n.Status.ClaimedAt.Time).Abs() < limits.ClaimLease
			_, requested := resendRequestedAt(n)
			switch d.Action {
			case ActionWait:
				switch {
				case d.RecheckAt.After(now.Machine):
					now.Policy = now.Policy.Add(d.RecheckAt.Sub(now.Machine))
					now.Machine = d.RecheckAt
				case d.RecheckPolicyAt.After(now.Policy):
					now.Policy = d.RecheckPolicyAt // a step of policy time
				default:
					t.Fatalf("a wait without a time: %+v", d)
				}
				continue
			case ActionSend:
				if n.Spec.DueAt.After(now.Policy) && !requested && n.Status.Phase != v1alpha1.NoticeSending {
					t.Fatalf("sent before DueAt")
				}
				if fresh {
					t.Fatalf("sent despite a valid claim")
				}
			case ActionSupersede:
				if n.Spec.Kind != v1alpha1.NoticeShareExceeded || d.Reason == "" {
					t.Fatalf("superseded: %+v", d)
				}
			case ActionNone:
				if !isFinished(n) {
					t.Fatalf("ActionNone before a final phase")
				}
			}
			return
		}
		t.Fatal("the notice never finishes")
	})
}

// Invariant 5: of warnings due together the most urgent is sent, and at least one of each subject,
// kind and recipient.
func TestSupersededWarningsKeepMostUrgent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []v1alpha1.Notice
		for i, n := range rapid.SliceOfN(drawNotice(), 1, 12).Draw(t, "notices") {
			n.Name += string(rune('a' + i))
			n.Spec.Recipient.Email = rapid.SampledFrom([]v1alpha1.EmailAddress{"anna@example.org", "Anna@Example.org", "ben@example.org"}).
				Draw(t, "to")
			all = append(all, *n)
		}
		superseded := SupersededWarnings(testInstant.Policy, all)
		for i := range all {
			n := &all[i]
			key, warns := warningKeyOf(n)
			if !superseded[n.Name] {
				continue
			}
			if !warns || isFinished(n) || n.Spec.DueAt.After(testInstant.Policy) {
				t.Fatalf("%s is superseded", n.Name)
			}
			if !slices.ContainsFunc(all, func(m v1alpha1.Notice) bool {
				other, ok := warningKeyOf(&m)
				finished := m.Status.Phase == v1alpha1.NoticeSuperseded || m.Status.Phase == v1alpha1.NoticeFailed
				return ok && other == key && !superseded[m.Name] && !finished && !m.Spec.DueAt.After(testInstant.Policy) && !m.Spec.DueAt.Before(&n.Spec.DueAt)
			}) {
				t.Fatalf("%s is superseded and nothing replaces it", n.Name)
			}
		}
	})
}

// A sent warning of an earlier deadline of the same workload does not replace a later one.
func TestSupersededWarningsSeparateRounds(t *testing.T) {
	warning := func(name, lead string, due time.Duration, p v1alpha1.NoticePhase) v1alpha1.Notice {
		length := period.MustParseDuration(lead)
		return *newNotice(withPhase(p), func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Lead, n.Spec.DueAt = name, &length, metav1.NewTime(testInstant.Policy.Add(due))
		})
	}
	tests := map[string]struct {
		all  []v1alpha1.Notice
		want map[string]bool
	}{
		"an earlier round": {
			[]v1alpha1.Notice{
				warning("old-30m", "30m", -100*time.Hour, v1alpha1.NoticeSent), warning("24h", "24h", -time.Hour, ""),
			}, map[string]bool{},
		},
		"one is due, one is not": {
			[]v1alpha1.Notice{warning("24h", "24h", -time.Hour, ""), warning("4h", "4h", time.Hour, "")}, map[string]bool{},
		},
		"lifecycle was away": {
			[]v1alpha1.Notice{
				warning("24h", "24h", -23*time.Hour, ""), warning("4h", "4h", -3*time.Hour, ""), warning("30m", "30m", -time.Minute, ""),
			},
			map[string]bool{"24h": true, "4h": true},
		},
		"the later one was sent": {
			[]v1alpha1.Notice{
				warning("24h", "24h", -23*time.Hour, ""), warning("4h", "4h", -3*time.Hour, v1alpha1.NoticeSent),
			}, map[string]bool{"24h": true},
		},
		"the later one failed": {
			[]v1alpha1.Notice{warning("24h", "24h", -23*time.Hour, ""), warning("4h", "4h", -3*time.Hour, v1alpha1.NoticeFailed)}, map[string]bool{},
		},
		"due at once": {
			[]v1alpha1.Notice{warning("24h", "24h", -time.Hour, ""), warning("4h", "4h", -time.Hour, "")}, map[string]bool{"24h": true},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, SupersededWarnings(testInstant.Policy, tc.all)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A Notice is retried for about five days, with a minimum delay.
func TestRetryDelayBounds(t *testing.T) {
	limits := DefaultLimits()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		var sum time.Duration
		for n := 1; n < limits.MaxAttempts; n++ {
			wait := limits.RetryDelay(name, n)
			if wait != limits.RetryDelay(name, n) {
				t.Fatal("two delays differ")
			}
			if low := limits.FirstRetry * 8 / 10; wait < low || wait > limits.MaxRetry*12/10 {
				t.Fatalf("attempt %d: %s", n, wait)
			}
			sum += wait
		}
		if sum < 90*time.Hour || sum > 150*time.Hour {
			t.Fatalf("retries take %s", sum)
		}
	})
}

func TestSequenceIncreasesWithDeadlineChanges(t *testing.T) {
	var all []v1alpha1.Notice
	day := func(n int) *metav1.Time { return &metav1.Time{Time: testInstant.Policy.AddDate(0, 0, n)} }
	add := func(to v1alpha1.EmailAddress, deadline *metav1.Time) {
		all = append(all, *newNotice(func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Deadline, n.Spec.Recipient.Email = "n"+string(rune('a'+len(all))), deadline, to
			n.CreationTimestamp = *atOffset(time.Duration(len(all)) * time.Hour)
			if deadline == nil {
				n.Spec.Kind = v1alpha1.NoticeProjectRenewed
			}
		}))
	}
	for _, deadline := range []*metav1.Time{day(1), day(1), day(2), day(1), day(1), nil, nil, day(1), day(3)} {
		add("anna@example.org", deadline)
		add("ben@example.org", day(9))
	}
	var anna, ben []int
	for i := range all {
		if i%2 == 0 {
			anna = append(anna, Sequence(&all[i], all))
		} else {
			ben = append(ben, Sequence(&all[i], all))
		}
	}
	if diff := cmp.Diff([]int{0, 0, 1, 2, 2, 3, 3, 4, 5}, anna); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{0, 0, 0, 0, 0, 0, 0, 0, 0}, ben); diff != "" {
		t.Error(diff)
	}
}

// A deletion that will not come leaves no appointment in the calendar.
func TestDismissalCancelsTheAppointment(t *testing.T) {
	deletion := func(name, cause string, deadline *metav1.Time) v1alpha1.Notice {
		return *newNotice(func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Kind, n.Spec.Deadline = name, v1alpha1.NoticeProjectDeletion, deadline
			n.Spec.Inputs = map[string]string{noticemail.InputCause: cause}
		})
	}
	approved := deletion("a", noticemail.CauseDeletionApproved, &metav1.Time{Time: testInstant.Policy.AddDate(0, 0, 7)})
	dismissed, unconfirmed := deletion("b", noticemail.CauseDeletionDismissed, nil), deletion("c", noticemail.CauseUnconfirmed, nil)
	all := []v1alpha1.Notice{approved, dismissed, unconfirmed}
	for name, want := range map[string]bool{"a": false, "b": true, "c": false} {
		for i := range all {
			if all[i].Name == name && IsCancellation(&all[i], all) != want {
				t.Errorf("%s (%s) cancels the appointment: %v, want %v", name, all[i].Spec.Inputs[noticemail.InputCause], !want, want)
			}
		}
	}
	if got := Sequence(&dismissed, all); got != 1 {
		t.Errorf("sequence %d, want 1", got)
	}
	if IsCancellation(&dismissed, []v1alpha1.Notice{dismissed}) {
		t.Error("cancels an appointment that the recipient does not have")
	}
}
