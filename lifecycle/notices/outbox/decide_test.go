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
	noon  = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	later = Moment{Machine: noon, Policy: noon.AddDate(3, 0, 0)}
)

// notice is one that was due an hour ago, recorded as long ago.
func notice(change ...func(*v1alpha1.Notice)) *v1alpha1.Notice {
	n := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Spec: v1alpha1.NoticeSpec{
			Recipient: v1alpha1.NoticeRecipient{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}},
			Kind:      v1alpha1.NoticeWorkloadEnding, DueAt: metav1.NewTime(later.Policy.Add(-time.Hour)),
			Subject: &v1alpha1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "lab", Name: "train"},
		},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }

func phase(p v1alpha1.NoticePhase) func(*v1alpha1.Notice) {
	return func(n *v1alpha1.Notice) { n.Status.Phase = p }
}

// Invariants 5, 6 and 8: what is due is sent, what was begun is taken over, and what
// is not sent says why.
func TestDecide(t *testing.T) {
	limits := DefaultLimits()
	claim := func(ago time.Duration, attempts int32) func(*v1alpha1.Notice) {
		return func(n *v1alpha1.Notice) {
			n.Status = v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSending, ClaimedBy: "other", ClaimedAt: at(-ago), Attempts: attempts}
		}
	}
	resend := func(ago time.Duration) func(*v1alpha1.Notice) {
		return func(n *v1alpha1.Notice) {
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: noon.Add(-ago).Format(time.RFC3339)}
		}
	}
	inDigest := func(n *v1alpha1.Notice) { n.Spec.Digest = "digest" }
	digest := func(p v1alpha1.NoticePhase, carries string) *v1alpha1.Notice {
		return notice(phase(p), func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Kind, n.Spec.Inputs = "digest", v1alpha1.NoticeDigest, map[string]string{InputCarries: carries}
		})
	}
	tests := map[string]struct {
		notice *v1alpha1.Notice
		around Around
		want   Decision
	}{
		"due":        {notice: notice(), want: Decision{Action: Send}},
		"due, early": {notice: notice(func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(later.Policy.Add(time.Hour)) }), want: Decision{Action: Wait, PolicyAt: later.Policy.Add(time.Hour)}},
		"just recorded": {
			notice: notice(func(n *v1alpha1.Notice) { n.CreationTimestamp = *at(-time.Second) }),
			want:   Decision{Action: Wait, At: noon.Add(4 * time.Second)},
		},
		"recorded by a clock that is ahead": {
			notice: notice(func(n *v1alpha1.Notice) { n.CreationTimestamp = *at(time.Hour) }), want: Decision{Action: Send},
		},
		"sent":       {notice: notice(phase(v1alpha1.NoticeSent)), want: Decision{Action: Rest}},
		"failed":     {notice: notice(phase(v1alpha1.NoticeFailed)), want: Decision{Action: Rest}},
		"superseded": {notice: notice(phase(v1alpha1.NoticeSuperseded)), want: Decision{Action: Rest}},
		"waits to be tried again": {
			notice: notice(func(n *v1alpha1.Notice) { n.Status.RetryAt = at(time.Minute) }), want: Decision{Action: Wait, At: noon.Add(time.Minute)},
		},
		"to be tried again in a year, by a clock that was wrong": {
			notice: notice(func(n *v1alpha1.Notice) { n.Status.RetryAt = at(365 * 24 * time.Hour) }), want: Decision{Action: Send},
		},
		"tried too often": {
			notice: notice(func(n *v1alpha1.Notice) { n.Status.Attempts = 35 }), want: Decision{Action: GiveUp, Because: "tried too often"},
		},
		"claimed by another":            {notice: notice(claim(time.Minute, 1)), want: Decision{Action: Wait, At: noon.Add(7 * time.Minute)}},
		"claimed by one that died":      {notice: notice(claim(limits.Lease, 1)), want: Decision{Action: Send}},
		"claimed in a future":           {notice: notice(claim(-time.Hour, 1)), want: Decision{Action: Send}},
		"whoever claims it dies":        {notice: notice(claim(time.Hour, 35)), want: Decision{Action: GiveUp, Because: "each attempt ended without an answer"}},
		"wanted again":                  {notice: notice(phase(v1alpha1.NoticeSent), resend(time.Minute)), want: Decision{Action: Send}},
		"wanted again, and was sent":    {notice: notice(claim(time.Second, 1), phase(v1alpha1.NoticeSent), resend(time.Minute)), want: Decision{Action: Rest}},
		"wanted again in a minute":      {notice: notice(phase(v1alpha1.NoticeFailed), resend(-time.Minute)), want: Decision{Action: Wait, At: noon.Add(time.Minute)}},
		"wanted again, nobody can read": {notice: notice(phase(v1alpha1.NoticeSent), func(n *v1alpha1.Notice) { n.Annotations = map[string]string{v1alpha1.AnnotationResend: "now"} }), want: Decision{Action: Rest}},
		"a later one says it":           {notice: notice(), around: Around{Newer: true}, want: Decision{Action: Supersede, Because: "a later warning says all that it would have said"}},
		"muted": {
			notice: notice(func(n *v1alpha1.Notice) {
				n.Spec.Kind, n.Spec.Recipient.Mute = v1alpha1.NoticeOverShare, []v1alpha1.OptionalNoticeKind{"OverShare"}
			}),
			want: Decision{Action: Supersede, Because: "the recipient does not want mail of this kind"},
		},
		"another kind is muted": {
			notice: notice(func(n *v1alpha1.Notice) { n.Spec.Recipient.Mute = []v1alpha1.OptionalNoticeKind{"OverShare"} }), want: Decision{Action: Send},
		},
		"over before there was mail": {
			notice: notice(func(n *v1alpha1.Notice) { n.Spec.DueAt = metav1.NewTime(later.Policy.Add(-48 * time.Hour)) }),
			around: Around{Since: later.Policy}, want: Decision{Action: Supersede, Because: "it was over before mail was set up"},
		},
		"warns of what is to come, though from before there was mail": {
			notice: notice(func(n *v1alpha1.Notice) {
				n.Spec.DueAt = metav1.NewTime(later.Policy.Add(-48 * time.Hour))
				n.Spec.Deadline = &metav1.Time{Time: later.Policy.Add(time.Hour)}
			}),
			around: Around{Since: later.Policy}, want: Decision{Action: Send},
		},
		"for a digest that is not there":      {notice: notice(inDigest), want: Decision{Action: Leave}},
		"for a digest, a later one says it":   {notice: notice(inDigest), around: Around{Newer: true}, want: Decision{Action: Supersede, Because: "a later warning says all that it would have said"}},
		"in a digest that waits":              {notice: notice(inDigest), around: Around{Digest: digest("", "m,n")}, want: Decision{Action: Wait}},
		"in a digest that was sent":           {notice: notice(inDigest), around: Around{Digest: digest(v1alpha1.NoticeSent, "m,n")}, want: Decision{Action: Follow}},
		"in a digest that failed":             {notice: notice(inDigest), around: Around{Digest: digest(v1alpha1.NoticeFailed, "n")}, want: Decision{Action: Follow}},
		"too late for its digest":             {notice: notice(inDigest), around: Around{Digest: digest(v1alpha1.NoticeSent, "m")}, want: Decision{Action: Send}},
		"in a digest that somebody set aside": {notice: notice(inDigest), around: Around{Digest: digest(v1alpha1.NoticeSuperseded, "n")}, want: Decision{Action: Send}},
		"names the digest of another": {
			notice: notice(inDigest),
			around: Around{Digest: func() *v1alpha1.Notice { d := digest("", "n"); d.Spec.Recipient.Email = "ben@example.org"; return d }()},
			want:   Decision{Action: Send},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(later, tc.notice, tc.around, limits)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// anyNotice is any Notice whose instants are around now.
func anyNotice() *rapid.Generator[*v1alpha1.Notice] {
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
		n := notice()
		n.Name = rapid.StringMatching(`[a-z]{1,6}`).Draw(t, "name")
		n.CreationTimestamp = instant("created", noon)
		n.Spec.DueAt = instant("due", later.Policy)
		n.Spec.Deadline = maybe("deadline", later.Policy)
		n.Spec.Kind = rapid.SampledFrom([]v1alpha1.NoticeKind{v1alpha1.NoticeWorkloadEnding, v1alpha1.NoticeOverShare, v1alpha1.NoticeWorkloadStopped}).Draw(t, "kind")
		if rapid.Bool().Draw(t, "lead") {
			lead := rapid.SampledFrom([]period.Duration{period.MustParseDuration("30m"), period.MustParseDuration("4h"), period.MustParseDuration("24h")}).Draw(t, "which lead")
			n.Spec.Lead = &lead
		}
		if rapid.Bool().Draw(t, "mutes") {
			n.Spec.Recipient.Mute = []v1alpha1.OptionalNoticeKind{"OverShare"}
		}
		if asked := maybe("resend", noon); asked != nil {
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: asked.Format(time.RFC3339)}
		}
		n.Status = v1alpha1.NoticeStatus{
			Phase:    rapid.SampledFrom([]v1alpha1.NoticePhase{"", v1alpha1.NoticePending, v1alpha1.NoticeSending, v1alpha1.NoticeSent, v1alpha1.NoticeFailed, v1alpha1.NoticeSuperseded}).Draw(t, "phase"),
			Attempts: rapid.Int32Range(0, 40).Draw(t, "attempts"), ClaimedAt: maybe("claimed", noon), RetryAt: maybe("retry", noon), SentAt: maybe("sent", later.Policy),
		}
		return n
	})
}

// Invariants 5 and 6: nothing is sent before it is due, nothing mandatory is ever set
// aside for the recipient's wish, a claim that is fresh is respected, and whatever
// waits is looked at again and comes to its end.
func TestDecideAlwaysEnds(t *testing.T) {
	limits := DefaultLimits()
	rapid.Check(t, func(t *rapid.T) {
		n, now := anyNotice().Draw(t, "notice"), later
		before := n.DeepCopy()
		for range 50 {
			d := Decide(now, n, Around{}, limits)
			if diff := cmp.Diff(d, Decide(now, n, Around{}, limits)); diff != "" {
				t.Fatalf("it is not the same twice: %s", diff)
			}
			if diff := cmp.Diff(before, n); diff != "" {
				t.Fatalf("it changed the notice: %s", diff)
			}
			fresh := n.Status.Phase == v1alpha1.NoticeSending && n.Status.ClaimedAt != nil &&
				now.Machine.Sub(n.Status.ClaimedAt.Time).Abs() < limits.Lease
			_, asked := resendAsked(n)
			switch d.Action {
			case Wait:
				switch {
				case d.At.After(now.Machine):
					now.Policy = now.Policy.Add(d.At.Sub(now.Machine))
					now.Machine = d.At
				case d.PolicyAt.After(now.Policy):
					now.Policy = d.PolicyAt // and machine time stands still: a step
				default:
					t.Fatalf("it waits for nothing: %+v", d)
				}
				continue
			case Send:
				if n.Spec.DueAt.After(now.Policy) && !asked && n.Status.Phase != v1alpha1.NoticeSending {
					t.Fatalf("sent before it is due")
				}
				if fresh {
					t.Fatalf("sent while another sends it")
				}
			case Supersede:
				if n.Spec.Kind != v1alpha1.NoticeOverShare || d.Because == "" {
					t.Fatalf("set aside: %+v", d)
				}
			case Rest:
				if !ended(n) {
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
func TestNewerLeavesTheMostUrgent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []v1alpha1.Notice
		for i, n := range rapid.SliceOfN(anyNotice(), 1, 12).Draw(t, "notices") {
			n.Name += string(rune('a' + i))
			n.Spec.Recipient.Email = rapid.SampledFrom([]v1alpha1.EmailAddress{"anna@example.org", "Anna@Example.org", "ben@example.org"}).Draw(t, "to")
			all = append(all, *n)
		}
		newer := Newer(later.Policy, all)
		for i := range all {
			n := &all[i]
			key, warns := aboutOf(n)
			if !newer[n.Name] {
				continue
			}
			if !warns || ended(n) || n.Spec.DueAt.After(later.Policy) {
				t.Fatalf("%s is set aside", n.Name)
			}
			if !slices.ContainsFunc(all, func(m v1alpha1.Notice) bool {
				other, ok := aboutOf(&m)
				gone := m.Status.Phase == v1alpha1.NoticeSuperseded || m.Status.Phase == v1alpha1.NoticeFailed
				return ok && other == key && !newer[m.Name] && !gone && !m.Spec.DueAt.After(later.Policy) && !m.Spec.DueAt.Before(&n.Spec.DueAt)
			}) {
				t.Fatalf("%s is set aside, and nothing is sent in its place", n.Name)
			}
		}
	})
}

// Two rounds of one workload: a warning of the round that is over, sent long ago, says
// nothing in place of the new round's.
func TestNewerKnowsRounds(t *testing.T) {
	warning := func(name, lead string, due time.Duration, p v1alpha1.NoticePhase) v1alpha1.Notice {
		length := period.MustParseDuration(lead)
		return *notice(phase(p), func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Lead, n.Spec.DueAt = name, &length, metav1.NewTime(later.Policy.Add(due))
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
			if diff := cmp.Diff(tc.want, Newer(later.Policy, tc.all)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A message is tried for about five days, and no attempt follows another too soon.
func TestRetryIsBounded(t *testing.T) {
	limits := DefaultLimits()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		var sum time.Duration
		for n := 1; n < limits.Attempts; n++ {
			wait := limits.Retry(name, n)
			if wait != limits.Retry(name, n) {
				t.Fatal("it is not the same twice")
			}
			if low := limits.FirstRetry * 8 / 10; wait < low || wait > limits.LongestRetry*12/10 {
				t.Fatalf("attempt %d: %s", n, wait)
			}
			sum += wait
		}
		if sum < 90*time.Hour || sum > 150*time.Hour {
			t.Fatalf("it is tried for %s", sum)
		}
	})
}

func TestSequenceRisesWithEachOtherDeadline(t *testing.T) {
	var all []v1alpha1.Notice
	day := func(n int) *metav1.Time { return &metav1.Time{Time: later.Policy.AddDate(0, 0, n)} }
	add := func(to v1alpha1.EmailAddress, deadline *metav1.Time) {
		all = append(all, *notice(func(n *v1alpha1.Notice) {
			n.Name, n.Spec.Deadline, n.Spec.Recipient.Email = "n"+string(rune('a'+len(all))), deadline, to
			n.CreationTimestamp = *at(time.Duration(len(all)) * time.Hour)
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
