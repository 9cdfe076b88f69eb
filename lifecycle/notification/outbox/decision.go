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

// Action is the next step for a Notice.
type Action string

// The actions.
const (
	// ActionNone: the Notice is finished.
	ActionNone Action = "None"
	// ActionWait: wait until the decision's times.
	ActionWait Action = "Wait"
	// ActionSend: send it, if the rates allow it and mail is not paused.
	ActionSend Action = "Send"
	// ActionAwaitDigest: wait until its digest is created.
	ActionAwaitDigest Action = "AwaitDigest"
	// ActionFollowDigest: finish it as its digest finished.
	ActionFollowDigest Action = "FollowDigest"
	// ActionSupersede: do not send it, for the decision's reason.
	ActionSupersede Action = "Supersede"
	// ActionGiveUp: stop after the maximum number of attempts.
	ActionGiveUp Action = "GiveUp"
)

// Instant is one moment in both times.
type Instant struct {
	// Machine is for retries, leases and claims.
	Machine time.Time
	// Policy is for due times, and for when a Notice was sent.
	Policy time.Time
}

// NoticeContext holds the inputs of a decision besides the Notice.
type NoticeContext struct {
	// HasNewer reports whether a later due warning replaces it: see [SupersededWarnings].
	HasNewer bool
	// Digest is the Notice named in spec.digest; nil if it does not exist yet.
	Digest *v1alpha1.Notice
	// MailEnabledAt is when mail was first configured, in policy time; zero for always. Notices
	// that were obsolete by then are not sent.
	MailEnabledAt time.Time
}

// Decision is the next step for a Notice, with its reason or time.
type Decision struct {
	// Action is the next step.
	Action Action
	// RecheckAt (machine time) and RecheckPolicyAt (policy time) are when to decide again; zero
	// for the next change of an object.
	RecheckAt, RecheckPolicyAt time.Time
	// Reason says why the Notice is not sent.
	Reason string
}

// Decide returns the next step for a Notice. It depends on its arguments only; of the Notice it
// reads name, creation time, annotations, spec and status.
func Decide(now Instant, n *v1alpha1.Notice, noticeContext NoticeContext, limits Limits) Decision {
	if n.Status.Phase == v1alpha1.NoticeSending {
		return decideClaimed(now, n, limits)
	}
	if requestedAt, ok := resendRequestedAt(n); ok {
		if requestedAt.After(now.Machine) {
			return Decision{Action: ActionWait, RecheckAt: requestedAt}
		}
		return Decision{Action: ActionSend}
	}
	switch {
	case isFinished(n):
		return Decision{Action: ActionNone}
	case n.Spec.Kind == v1alpha1.NoticeTest:
		return decideTest(now, n, limits)
	case isMuted(n):
		return Decision{Action: ActionSupersede, Reason: "the recipient muted mail of this kind"}
	case n.Spec.DueAt.After(now.Policy):
		return Decision{Action: ActionWait, RecheckPolicyAt: n.Spec.DueAt.Time}
	case isObsolete(n, noticeContext.MailEnabledAt):
		return Decision{Action: ActionSupersede, Reason: "it was obsolete before mail was configured"}
	}
	if n.Spec.Digest != "" {
		switch d := noticeContext.Digest; {
		case d == nil && !noticeContext.HasNewer:
			return decideAfterSettling(now, n, limits.DigestSettleDelay, ActionAwaitDigest)
		case d == nil || !carriesNotice(d, n) || d.Status.Phase == v1alpha1.NoticeSuperseded:
			// It was recorded too late for the digest and becomes a mail of its own.
		case isFinished(d):
			return Decision{Action: ActionFollowDigest}
		default:
			return Decision{Action: ActionWait} // for the digest, whose change triggers a pass
		}
	}
	if noticeContext.HasNewer {
		return Decision{Action: ActionSupersede, Reason: "a later warning replaces it"}
	}
	return decideAttempt(now, n, limits)
}

// decideAttempt decides on a Notice to send or to retry.
func decideAttempt(now Instant, n *v1alpha1.Notice, limits Limits) Decision {
	if int(n.Status.Attempts) >= limits.MaxAttempts {
		return Decision{Action: ActionGiveUp, Reason: "too many attempts"}
	}
	// A time later than any retry comes from a wrong clock.
	if retry := n.Status.RetryAt; retry != nil && retry.After(now.Machine) && retry.Sub(now.Machine) <= 2*limits.MaxRetry {
		return Decision{Action: ActionWait, RecheckAt: retry.Time}
	}
	return decideAfterSettling(now, n, limits.SettleDelay, ActionSend)
}

// maxTestAge is the time for which a test stays relevant, in machine time.
const maxTestAge = 24 * time.Hour

// decideTest decides on an unfinished Test. It is due on creation, is in no digest, and is
// superseded if it could not be tried for maxTestAge.
func decideTest(now Instant, n *v1alpha1.Notice, limits Limits) Decision {
	_, again := n.Annotations[v1alpha1.AnnotationResend]
	if n.Status.Attempts == 0 && !again && now.Machine.Sub(n.CreationTimestamp.Time) > maxTestAge {
		return Decision{Action: ActionSupersede, Reason: "the test could not be tried for a day"}
	}
	limits.SettleDelay = 0 // a test has no related Notices
	return decideAttempt(now, n, limits)
}

// decideClaimed decides on a Notice that a process is sending, or was when it crashed.
func decideClaimed(now Instant, n *v1alpha1.Notice, limits Limits) Decision {
	at := n.Status.ClaimedAt
	if at != nil {
		if age := now.Machine.Sub(at.Time); age < limits.ClaimLease && age > -limits.ClaimLease {
			return Decision{Action: ActionWait, RecheckAt: at.Add(limits.ClaimLease)}
		}
	}
	if int(n.Status.Attempts) >= limits.MaxAttempts {
		return Decision{Action: ActionGiveUp, Reason: "each attempt ended without a result"}
	}
	return Decision{Action: ActionSend}
}

// decideAfterSettling returns the action after the settle delay, in which the recorder creates
// or supersedes related Notices.
func decideAfterSettling(now Instant, n *v1alpha1.Notice, settle time.Duration, action Action) Decision {
	if age := now.Machine.Sub(n.CreationTimestamp.Time); age >= 0 && age < settle {
		return Decision{Action: ActionWait, RecheckAt: n.CreationTimestamp.Add(settle)}
	}
	return Decision{Action: action}
}

// isFinished reports whether a Notice is in a final phase.
func isFinished(n *v1alpha1.Notice) bool {
	switch n.Status.Phase {
	case v1alpha1.NoticeSent, v1alpha1.NoticeFailed, v1alpha1.NoticeSuperseded:
		return true
	}
	return false
}

// isMuted reports whether the recipient muted the kind. The field accepts optional kinds only.
func isMuted(n *v1alpha1.Notice) bool {
	return n.Spec.IsOptional() && slices.Contains(n.Spec.Recipient.Mute, v1alpha1.OptionalNoticeKind(n.Spec.Kind))
}

// maxNewsAge is the maximum age of a Notice when mail is first configured.
const maxNewsAge = 24 * time.Hour

// isObsolete reports whether a Notice was outdated when mail was first configured.
func isObsolete(n *v1alpha1.Notice, since time.Time) bool {
	if since.IsZero() || !n.Spec.DueAt.Time.Before(since.Add(-maxNewsAge)) {
		return false
	}
	return n.Spec.Deadline == nil || n.Spec.Deadline.Time.Before(since)
}

// resendRequestedAt returns when another sending was requested that has not happened yet. An
// invalid annotation requests nothing.
func resendRequestedAt(n *v1alpha1.Notice) (time.Time, bool) {
	text, ok := n.Annotations[v1alpha1.AnnotationResend]
	if !ok || !isFinished(n) {
		return time.Time{}, false // an unfinished Notice is sent anyway
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, false
	}
	at = at.Truncate(time.Second) // the resolution of a claim
	if n.Status.ClaimedAt != nil && !n.Status.ClaimedAt.Time.Before(at) {
		return time.Time{}, false
	}
	return at, true
}

// warningKey identifies warnings of which a later one replaces the earlier ones. Only Notices
// with a lead are warnings.
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

// recipientAddress returns the recipient's address in lower case, for comparison.
func recipientAddress(n *v1alpha1.Notice) string {
	return strings.ToLower(string(n.Spec.Recipient.Email))
}

// SupersededWarnings returns the names of warnings that a later one replaces: of one subject, kind
// and recipient all due ones but the latest. A failed warning replaces none.
func SupersededWarnings(now time.Time, notices []v1alpha1.Notice) map[string]bool {
	latest := map[warningKey]*v1alpha1.Notice{}
	forEachDueWarning(now, notices, func(key warningKey, n *v1alpha1.Notice) {
		if previous := latest[key]; previous == nil || isDueBefore(previous, n) {
			latest[key] = n
		}
	})
	superseded := map[string]bool{}
	forEachDueWarning(now, notices, func(key warningKey, n *v1alpha1.Notice) {
		if !isFinished(n) && isDueBefore(n, latest[key]) {
			superseded[n.Name] = true
		}
	})
	return superseded
}

// forEachDueWarning calls visit for each due warning that is not superseded or failed.
func forEachDueWarning(now time.Time, notices []v1alpha1.Notice, visit func(warningKey, *v1alpha1.Notice)) {
	for i := range notices {
		n := &notices[i]
		key, ok := warningKeyOf(n)
		excluded := n.Status.Phase == v1alpha1.NoticeSuperseded || n.Status.Phase == v1alpha1.NoticeFailed
		if ok && !excluded && !n.Spec.DueAt.After(now) {
			visit(key, n)
		}
	}
}

// isDueBefore reports whether a is due before b; with equal times the longer lead comes first.
func isDueBefore(a, b *v1alpha1.Notice) bool {
	if !a.Spec.DueAt.Equal(&b.Spec.DueAt) {
		return a.Spec.DueAt.Before(&b.Spec.DueAt)
	}
	return a.Spec.Lead.Length() > b.Spec.Lead.Length()
}

// CacheTransform returns a transform for the cache that keeps what [Decide] reads and drops the
// inputs of the text, the largest part. A Notice is read live before it is sent or written.
func CacheTransform() cache.TransformFunc {
	return func(object any) (any, error) {
		n, ok := object.(*v1alpha1.Notice)
		if !ok {
			return nil, fmt.Errorf("trim notice: unexpected type %T", object)
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
