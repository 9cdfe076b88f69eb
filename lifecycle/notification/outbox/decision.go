// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"

	"sluice.dev/api/v1alpha1"
)

// Action is what is to be done about a Notice.
type Action string

// The actions.
const (
	// ActionNone: it came to its end.
	ActionNone Action = "Rest"
	// ActionWait: nothing, until the decision's instants.
	ActionWait Action = "Wait"
	// ActionSend: it is sent, if the rates allow it and mail is not paused.
	ActionSend Action = "Send"
	// ActionAwaitDigest: the digest that it names is to carry it, and is not there yet.
	ActionAwaitDigest Action = "Leave"
	// ActionFollowDigest: it ends as the digest ended that carried it.
	ActionFollowDigest Action = "Follow"
	// ActionSupersede: it is not sent, for the decision's reason.
	ActionSupersede Action = "Supersede"
	// ActionGiveUp: it was tried often enough.
	ActionGiveUp Action = "GiveUp"
)

// Instant is one instant in both times.
type Instant struct {
	// Machine is for retries, leases and claims.
	Machine time.Time
	// Policy is for what is due, and when it was sent.
	Policy time.Time
}

// NoticeContext is what else there is that bears on a Notice.
type NoticeContext struct {
	// HasNewer is that there is a due one of the same subject, kind and recipient that
	// says all it would say: see [Newer].
	HasNewer bool
	// Digest is the Notice that it names in spec.digest; nil where there is none yet.
	Digest *v1alpha1.Notice
	// MailEnabledAt is when mail was set up, in policy time; zero for always. What was over by
	// then is not sent.
	MailEnabledAt time.Time
}

// Decision is what is to be done, and why or until when.
type Decision struct {
	// Action is what is to be done.
	Action Action
	// RecheckAt, in machine time, and PolicyAt, in policy time, are when to look again; zero
	// for when something changes.
	RecheckAt, RecheckPolicyAt time.Time
	// Reason is why it is not sent.
	Reason string
}

// Decide tells what is to be done about a Notice. It reads its name, creation,
// annotations, spec and status, and nothing else; the same gives the same.
func Decide(now Instant, n *v1alpha1.Notice, around NoticeContext, limits Limits) Decision {
	if n.Status.Phase == v1alpha1.NoticeSending {
		return decideClaimed(now, n, limits)
	}
	if asked, ok := resendRequestedAt(n); ok {
		if asked.After(now.Machine) {
			return Decision{Action: ActionWait, RecheckAt: asked}
		}
		return Decision{Action: ActionSend}
	}
	switch {
	case isFinished(n):
		return Decision{Action: ActionNone}
	case n.Spec.Kind == v1alpha1.NoticeTest:
		return decideTest(now, n, limits)
	case isMuted(n):
		return Decision{Action: ActionSupersede, Reason: "the recipient does not want mail of this kind"}
	case n.Spec.DueAt.After(now.Policy):
		return Decision{Action: ActionWait, RecheckPolicyAt: n.Spec.DueAt.Time}
	case isObsolete(n, around.MailEnabledAt):
		return Decision{Action: ActionSupersede, Reason: "it was over before mail was set up"}
	}
	if n.Spec.Digest != "" {
		switch d := around.Digest; {
		case d == nil && !around.HasNewer:
			return decideAfterSettling(now, n, limits.DigestSettleDelay, ActionAwaitDigest)
		case d == nil || !carriesNotice(d, n) || d.Status.Phase == v1alpha1.NoticeSuperseded:
			// It came too late for the digest, and is a mail of its own.
		case isFinished(d):
			return Decision{Action: ActionFollowDigest}
		default:
			return Decision{Action: ActionWait} // for the digest, whose change is heard of
		}
	}
	if around.HasNewer {
		return Decision{Action: ActionSupersede, Reason: "a later warning says all that it would have said"}
	}
	return decideAttempt(now, n, limits)
}

// decideAttempt is a Notice that is to be sent, perhaps not for the first time.
func decideAttempt(now Instant, n *v1alpha1.Notice, limits Limits) Decision {
	if int(n.Status.Attempts) >= limits.MaxAttempts {
		return Decision{Action: ActionGiveUp, Reason: "tried too often"}
	}
	// An instant further away than any retry was written by a clock that was wrong.
	if retry := n.Status.RetryAt; retry != nil && retry.After(now.Machine) && retry.Sub(now.Machine) <= 2*limits.MaxRetry {
		return Decision{Action: ActionWait, RecheckAt: retry.Time}
	}
	return decideAfterSettling(now, n, limits.SettleDelay, ActionSend)
}

// maxTestAge is for how long somebody is taken to wait for a test, in machine time.
const maxTestAge = 24 * time.Hour

// decideTest is a Test that has not ended. It is due when it is made, whatever it says, and
// in no digest. Nobody waits for one that could not be tried for a day.
func decideTest(now Instant, n *v1alpha1.Notice, limits Limits) Decision {
	_, again := n.Annotations[v1alpha1.AnnotationResend]
	if n.Status.Attempts == 0 && !again && now.Machine.Sub(n.CreationTimestamp.Time) > maxTestAge {
		return Decision{Action: ActionSupersede, Reason: "nobody waits for a test that could not be tried for a day"}
	}
	limits.SettleDelay = 0 // it has no siblings
	return decideAttempt(now, n, limits)
}

// decideClaimed is a Notice that somebody is sending, or was when the process died.
func decideClaimed(now Instant, n *v1alpha1.Notice, limits Limits) Decision {
	at := n.Status.ClaimedAt
	if at != nil {
		if age := now.Machine.Sub(at.Time); age < limits.ClaimLease && age > -limits.ClaimLease {
			return Decision{Action: ActionWait, RecheckAt: at.Add(limits.ClaimLease)}
		}
	}
	if int(n.Status.Attempts) >= limits.MaxAttempts {
		return Decision{Action: ActionGiveUp, Reason: "each attempt ended without an answer"}
	}
	return Decision{Action: ActionSend}
}

// decideAfterSettling is the action, once whoever recorded n had the time to record, or to set
// aside, the others that belong to it.
func decideAfterSettling(now Instant, n *v1alpha1.Notice, settle time.Duration, action Action) Decision {
	if age := now.Machine.Sub(n.CreationTimestamp.Time); age >= 0 && age < settle {
		return Decision{Action: ActionWait, RecheckAt: n.CreationTimestamp.Add(settle)}
	}
	return Decision{Action: action}
}

// isFinished tells whether a Notice came to its end.
func isFinished(n *v1alpha1.Notice) bool {
	switch n.Status.Phase {
	case v1alpha1.NoticeSent, v1alpha1.NoticeFailed, v1alpha1.NoticeSuperseded:
		return true
	}
	return false
}

// isMuted tells whether the recipient does not want it. Only of the optional kinds can
// that be said: the field takes no others.
func isMuted(n *v1alpha1.Notice) bool {
	return slices.Contains(n.Spec.Recipient.Mute, v1alpha1.OptionalNoticeKind(n.Spec.Kind))
}

// maxNewsAge is how old news may be that was recorded before mail was set up.
const maxNewsAge = 24 * time.Hour

// isObsolete tells whether all that a Notice says lay in the past when mail was set up.
func isObsolete(n *v1alpha1.Notice, since time.Time) bool {
	if since.IsZero() || !n.Spec.DueAt.Time.Before(since.Add(-maxNewsAge)) {
		return false
	}
	return n.Spec.Deadline == nil || n.Spec.Deadline.Time.Before(since)
}

// resendRequestedAt is when another sending was asked for that there was not yet. What
// cannot be read asks for nothing.
func resendRequestedAt(n *v1alpha1.Notice) (time.Time, bool) {
	text, ok := n.Annotations[v1alpha1.AnnotationResend]
	if !ok || !isFinished(n) {
		return time.Time{}, false // what waits is sent in any case
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, false
	}
	at = at.Truncate(time.Second) // as exact as a claim is
	if n.Status.ClaimedAt != nil && !n.Status.ClaimedAt.Time.Before(at) {
		return time.Time{}, false
	}
	return at, true
}

// warningKey is what Notices have in common of which a later one says all that an earlier
// one would have said. Only what warns, a lead ahead, is of that kind.
type warningKey struct {
	kind, recipient string
	subject         v1alpha1.ObjectReference
}

func warningKeyOf(n *v1alpha1.Notice) (warningKey, bool) {
	if n.Spec.Lead == nil || n.Spec.Subject == nil {
		return warningKey{}, false
	}
	return warningKey{kind: string(n.Spec.Kind), recipient: recipientAddress(n), subject: *n.Spec.Subject}, true
}

// recipientAddress is the recipient's address as it is compared: nobody has two that differ
// in case alone.
func recipientAddress(n *v1alpha1.Notice) string {
	return strings.ToLower(string(n.Spec.Recipient.Email))
}

// SupersededWarnings are the Notices, by name, in whose place a more urgent one is sent, or was:
// of those of one subject, kind and recipient all that are due but the latest. One
// that failed says nothing in another's place.
func SupersededWarnings(now time.Time, notices []v1alpha1.Notice) map[string]bool {
	latest := map[warningKey]*v1alpha1.Notice{}
	forEachDueWarning(now, notices, func(key warningKey, n *v1alpha1.Notice) {
		if was := latest[key]; was == nil || isDueBefore(was, n) {
			latest[key] = n
		}
	})
	newer := map[string]bool{}
	forEachDueWarning(now, notices, func(key warningKey, n *v1alpha1.Notice) {
		if !isFinished(n) && isDueBefore(n, latest[key]) {
			newer[n.Name] = true
		}
	})
	return newer
}

// forEachDueWarning calls with all warnings that are due, and not set aside.
func forEachDueWarning(now time.Time, notices []v1alpha1.Notice, with func(warningKey, *v1alpha1.Notice)) {
	for i := range notices {
		n := &notices[i]
		key, ok := warningKeyOf(n)
		aside := n.Status.Phase == v1alpha1.NoticeSuperseded || n.Status.Phase == v1alpha1.NoticeFailed
		if ok && !aside && !n.Spec.DueAt.After(now) {
			with(key, n)
		}
	}
}

// isDueBefore tells whether a was due before b; of two that were due at once the one with
// the longer lead.
func isDueBefore(a, b *v1alpha1.Notice) bool {
	if !a.Spec.DueAt.Equal(&b.Spec.DueAt) {
		return a.Spec.DueAt.Before(&b.Spec.DueAt)
	}
	return a.Spec.Lead.Length() > b.Spec.Lead.Length()
}

// CacheTransform is a transform for the cache: of a Notice it keeps what [Decide] reads, and
// leaves out the inputs of its text, which are most of it. A Notice is read live
// before it is sent or written.
func CacheTransform() cache.TransformFunc {
	return func(object any) (any, error) {
		n, ok := object.(*v1alpha1.Notice)
		if !ok {
			return nil, fmt.Errorf("trimming notices: %T is none", object)
		}
		n.ManagedFields = nil
		carried := n.Spec.Inputs[InputCarriedNotices]
		n.Spec.Inputs = nil
		if carried != "" {
			n.Spec.Inputs = map[string]string{InputCarriedNotices: carried}
		}
		resend, ok := n.Annotations[v1alpha1.AnnotationResend]
		n.Annotations = nil
		if ok {
			n.Annotations = map[string]string{v1alpha1.AnnotationResend: resend}
		}
		return n, nil
	}
}
