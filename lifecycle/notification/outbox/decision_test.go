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
)

// noon is now in the tables, in machine time; policy time is three years ahead, as
// it may be in an embedded cluster.
var (
	noon        = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	testInstant = Instant{Machine: noon, Policy: noon.AddDate(3, 0, 0)}
)

// newNotice is one that was due an hour ago, recorded as long ago.
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

// Invariants 5, 6 and 8: what is due is sent, what was begun is taken over, and what
// is not sent says why.
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
		"due":        {notice: newNotice(), want: Decision{Action: ActionSend}},
		"due, early": {notice: newNotice(func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(testInstant.Policy.Add(time.Hour)) }), want: Decision{Action: ActionWait, RecheckPolicyAt: testInstant.Policy.Add(time.Hour)}},
		"just recorded": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.CreationTimestamp = *atOffset(-time.Second) }),
			want:   Decision{Action: ActionWait, RecheckAt: noon.Add(4 * time.Second)},
		},
		"recorded by a clock that is ahead": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.CreationTimestamp = *atOffset(time.Hour) }), want: Decision{Action: ActionSend},
		},
		"sent":       {notice: newNotice(withPhase(v1alpha1.NoticeSent)), want: Decision{Action: ActionNone}},
		"failed":     {notice: newNotice(withPhase(v1alpha1.NoticeFailed)), want: Decision{Action: ActionNone}},
		"superseded": {notice: newNotice(withPhase(v1alpha1.NoticeSuperseded)), want: Decision{Action: ActionNone}},
		"waits to be tried again": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.Status.RetryAt = atOffset(time.Minute) }), want: Decision{Action: ActionWait, RecheckAt: noon.Add(time.Minute)},
		},
		"to be tried again in a year, by a clock that was wrong": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.Status.RetryAt = atOffset(365 * 24 * time.Hour) }), want: Decision{Action: ActionSend},
		},
		"tried too often": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.Status.Attempts = 35 }), want: Decision{Action: ActionGiveUp, Reason: "tried too often"},
		},
		"claimed by another":            {notice: newNotice(claim(time.Minute, 1)), want: Decision{Action: ActionWait, RecheckAt: noon.Add(7 * time.Minute)}},
		"claimed by one that died":      {notice: newNotice(claim(limits.ClaimLease, 1)), want: Decision{Action: ActionSend}},
		"claimed in a future":           {notice: newNotice(claim(-time.Hour, 1)), want: Decision{Action: ActionSend}},
		"whoever claims it dies":        {notice: newNotice(claim(time.Hour, 35)), want: Decision{Action: ActionGiveUp, Reason: "each attempt ended without an answer"}},
		"wanted again":                  {notice: newNotice(withPhase(v1alpha1.NoticeSent), resend(time.Minute)), want: Decision{Action: ActionSend}},
		"wanted again, and was sent":    {notice: newNotice(claim(time.Second, 1), withPhase(v1alpha1.NoticeSent), resend(time.Minute)), want: Decision{Action: ActionNone}},
		"wanted again in a minute":      {notice: newNotice(withPhase(v1alpha1.NoticeFailed), resend(-time.Minute)), want: Decision{Action: ActionWait, RecheckAt: noon.Add(time.Minute)}},
		"wanted again, nobody can read": {notice: newNotice(withPhase(v1alpha1.NoticeSent), func(n *v1alpha1.Notice) { n.Annotations = map[string]string{v1alpha1.AnnotationResend: "now"} }), want: Decision{Action: ActionNone}},
		"a later one says it":           {notice: newNotice(), around: NoticeContext{HasNewer: true}, want: Decision{Action: ActionSupersede, Reason: "a later warning says all that it would have said"}},
		"muted": {
			notice: newNotice(func(n *v1alpha1.Notice) {
				n.Spec.Kind, n.Spec.Recipient.Mute = v1alpha1.NoticeShareExceeded, []v1alpha1.OptionalNoticeKind{"ShareExceeded"}
			}),
			want: Decision{Action: ActionSupersede, Reason: "the recipient does not want mail of this kind"},
		},
		"another kind is muted": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.Spec.Recipient.Mute = []v1alpha1.OptionalNoticeKind{"ShareExceeded"} }), want: Decision{Action: ActionSend},
		},
		"over before there was mail": {
			notice: newNotice(func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(testInstant.Policy.Add(-48 * time.Hour)) }),
			around: NoticeContext{MailEnabledAt: testInstant.Policy}, want: Decision{Action: ActionSupersede, Reason: "it was over before mail was set up"},
		},
		"warns of what is to come, though from before there was mail": {
			notice: newNotice(func(n *v1alpha1.Notice) {
				n.Spec.DueAt = metav1.NewTime(testInstant.Policy.Add(-48 * time.Hour))
				n.Spec.Deadline = &metav1.Time{Time: testInstant.Policy.Add(time.Hour)}
			}),
			around: NoticeContext{MailEnabledAt: testInstant.Policy}, want: Decision{Action: ActionSend},
		},
		"for a digest that is not there":      {notice: newNotice(inDigest), want: Decision{Action: ActionAwaitDigest}},
		"for a digest, a later one says it":   {notice: newNotice(inDigest), around: NoticeContext{HasNewer: true}, want: Decision{Action: ActionSupersede, Reason: "a later warning says all that it would have said"}},
		"in a digest that waits":              {notice: newNotice(inDigest), around: NoticeContext{Digest: digest("", "m,n")}, want: Decision{Action: ActionWait}},
		"in a digest that was sent":           {notice: newNotice(inDigest), around: NoticeContext{Digest: digest(v1alpha1.NoticeSent, "m,n")}, want: Decision{Action: ActionFollowDigest}},
		"in a digest that failed":             {notice: newNotice(inDigest), around: NoticeContext{Digest: digest(v1alpha1.NoticeFailed, "n")}, want: Decision{Action: ActionFollowDigest}},
		"too late for its digest":             {notice: newNotice(inDigest), around: NoticeContext{Digest: digest(v1alpha1.NoticeSent, "m")}, want: Decision{Action: ActionSend}},
		"in a digest that somebody set aside": {notice: newNotice(inDigest), around: NoticeContext{Digest: digest(v1alpha1.NoticeSuperseded, "n")}, want: Decision{Action: ActionSend}},
		"names the digest of another": {
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

// drawNotice is any Notice whose instants are around now.
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
		n.Spec.Kind = rapid.SampledFrom([]v1alpha1.NoticeKind{v1alpha1.NoticeWorkloadEnding, v1alpha1.NoticeShareExceeded, v1alpha1.NoticeWorkloadStopped}).Draw(t, "kind")
		if rapid.Bool().Draw(t, "lead") {
			lead := rapid.SampledFrom([]period.Duration{period.MustParseDuration("30m"), period.MustParseDuration("4h"), period.MustParseDuration("24h")}).Draw(t, "which lead")
			n.Spec.Lead = &lead
		}
		if rapid.Bool().Draw(t, "mutes") {
			n.Spec.Recipient.Mute = []v1alpha1.OptionalNoticeKind{"ShareExceeded"}
		}
		if asked := maybe("resend", noon); asked != nil {
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: asked.Format(time.RFC3339)}
		}
		n.Status = v1alpha1.NoticeStatus{
			Phase:    rapid.SampledFrom([]v1alpha1.NoticePhase{"", v1alpha1.NoticePending, v1alpha1.NoticeSending, v1alpha1.NoticeSent, v1alpha1.NoticeFailed, v1alpha1.NoticeSuperseded}).Draw(t, "phase"),
			Attempts: rapid.Int32Range(0, 40).Draw(t, "attempts"), ClaimedAt: maybe("claimed", noon), RetryAt: maybe("retry", noon), SentAt: maybe("sent", testInstant.Policy),
		}
		return n
	})
}

// Invariants 5 and 6: nothing is sent before it is due, nothing mandatory is ever set
// aside for the recipient's wish, a claim that is fresh is respected, and whatever
// waits is looked at again and comes to its end.
func TestDecideReachesFinalPhase(t *testing.T) {
	limits := DefaultLimits()
	rapid.Check(t, func(t *rapid.T) {
		n, now := drawNotice().Draw(t, "notice"), testInstant
		before := n.DeepCopy()
		for range 50 {
			d := Decide(now, n, NoticeContext{}, limits)
			if diff := cmp.Diff(d, Decide(now, n, NoticeContext{}, limits)); diff != "" {
				t.Fatalf("it is not the same twice: %s", diff)
			}
			if diff := cmp.Diff(before, n); diff != "" {
				t.Fatalf("it changed the notice: %s", diff)
			}
			fresh := n.Status.Phase == v1alpha1.NoticeSending && n.Status.ClaimedAt != nil &&
				now.Machine.Sub(n.Status.ClaimedAt.Time).Abs() < limits.ClaimLease
			_, asked := resendRequestedAt(n)
			switch d.Action {
			case ActionWait:
				switch {
				case d.RecheckAt.After(now.Machine):
					now.Policy = now.Policy.Add(d.RecheckAt.Sub(now.Machine))
					now.Machine = d.RecheckAt
				case d.RecheckPolicyAt.After(now.Policy):
					now.Policy = d.RecheckPolicyAt // and machine time stands still: a step
				default:
					t.Fatalf("it waits for nothing: %+v", d)
				}
				continue
			case ActionSend:
				if n.Spec.DueAt.After(now.Policy) && !asked && n.Status.Phase != v1alpha1.NoticeSending {
					t.Fatalf("sent before it is due")
				}
				if fresh {
					t.Fatalf("sent while another sends it")
				}
			case ActionSupersede:
				if n.Spec.Kind != v1alpha1.NoticeShareExceeded || d.Reason == "" {
					t.Fatalf("set aside: %+v", d)
				}
			case ActionNone:
				if !isFinished(n) {
					t.Fatalf("it rests, and has not ended")
				}
			}
			return
		}
		t.Fatal("it waits for ever")
	})
}

// Invariant 5: of warnings that fell due together the most urgent is sent, and at
// least one of each subject, kind and recipient always is.
func TestSupersededWarningsKeepMostUrgent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []v1alpha1.Notice
		for i, n := range rapid.SliceOfN(drawNotice(), 1, 12).Draw(t, "notices") {
			n.Name += string(rune('a' + i))
			n.Spec.Recipient.Email = rapid.SampledFrom([]v1alpha1.EmailAddress{"anna@example.org", "Anna@Example.org", "ben@example.org"}).Draw(t, "to")
			all = append(all, *n)
		}
		newer := SupersededWarnings(testInstant.Policy, all)
		for i := range all {
			n := &all[i]
			key, warns := warningKeyOf(n)
			if !newer[n.Name] {
				continue
			}
			if !warns || isFinished(n) || n.Spec.DueAt.After(testInstant.Policy) {
				t.Fatalf("%s is set aside", n.Name)
			}
			if !slices.ContainsFunc(all, func(m v1alpha1.Notice) bool {
				other, ok := warningKeyOf(&m)
				gone := m.Status.Phase == v1alpha1.NoticeSuperseded || m.Status.Phase == v1alpha1.NoticeFailed
				return ok && other == key && !newer[m.Name] && !gone && !m.Spec.DueAt.After(testInstant.Policy) && !m.Spec.DueAt.Before(&n.Spec.DueAt)
			}) {
				t.Fatalf("%s is set aside, and nothing is sent in its place", n.Name)
			}
		}
	})
}

// Two rounds of one workload: a warning of the round that is over, sent long ago, says
// nothing in place of the new round's.
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
			[]v1alpha1.Notice{warning("old-30m", "30m", -100*time.Hour, v1alpha1.NoticeSent), warning("24h", "24h", -time.Hour, "")}, map[string]bool{},
		},
		"one is due, one is not": {
			[]v1alpha1.Notice{warning("24h", "24h", -time.Hour, ""), warning("4h", "4h", time.Hour, "")}, map[string]bool{},
		},
		"lifecycle was away": {
			[]v1alpha1.Notice{warning("24h", "24h", -23*time.Hour, ""), warning("4h", "4h", -3*time.Hour, ""), warning("30m", "30m", -time.Minute, "")},
			map[string]bool{"24h": true, "4h": true},
		},
		"the later one was sent": {
			[]v1alpha1.Notice{warning("24h", "24h", -23*time.Hour, ""), warning("4h", "4h", -3*time.Hour, v1alpha1.NoticeSent)}, map[string]bool{"24h": true},
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

// A message is tried for about five days, and no attempt follows another too soon.
func TestRetryDelayBounds(t *testing.T) {
	limits := DefaultLimits()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		var sum time.Duration
		for n := 1; n < limits.MaxAttempts; n++ {
			wait := limits.RetryDelay(name, n)
			if wait != limits.RetryDelay(name, n) {
				t.Fatal("it is not the same twice")
			}
			if low := limits.FirstRetry * 8 / 10; wait < low || wait > limits.MaxRetry*12/10 {
				t.Fatalf("attempt %d: %s", n, wait)
			}
			sum += wait
		}
		if sum < 90*time.Hour || sum > 150*time.Hour {
			t.Fatalf("it is tried for %s", sum)
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
