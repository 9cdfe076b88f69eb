// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
)

// Action is what is to be done about a Notice.
type Action string

// The actions.
const (
	// Rest: it came to its end.
	Rest Action = "Rest"
	// Wait: nothing, until the decision's instants.
	Wait Action = "Wait"
	// Send: it is sent, if the rates allow it and mail is not paused.
	Send Action = "Send"
	// Leave: the digest that it names is to carry it, and is not there yet.
	Leave Action = "Leave"
	// Follow: it ends as the digest ended that carried it.
	Follow Action = "Follow"
	// Supersede: it is not sent, for the decision's reason.
	Supersede Action = "Supersede"
	// GiveUp: it was tried often enough.
	GiveUp Action = "GiveUp"
)

// Moment is one instant in both times.
type Moment struct {
	// Machine is for retries, leases and claims.
	Machine time.Time
	// Policy is for what is due, and when it was sent.
	Policy time.Time
}

// Around is what else there is that bears on a Notice.
type Around struct {
	// Newer is that there is a due one of the same subject, kind and recipient that
	// says all it would say: see [Newer].
	Newer bool
	// Digest is the Notice that it names in spec.digest; nil where there is none yet.
	Digest *v1alpha1.Notice
	// Since is when mail was set up, in policy time; zero for always. What was over by
	// then is not sent.
	Since time.Time
}

// Decision is what is to be done, and why or until when.
type Decision struct {
	// Action is what is to be done.
	Action Action
	// At, in machine time, and PolicyAt, in policy time, are when to look again; zero
	// for when something changes.
	At, PolicyAt time.Time
	// Because is why it is not sent.
	Because string
}

// Decide tells what is to be done about a Notice. It reads its name, creation,
// annotations, spec and status, and nothing else; the same gives the same.
func Decide(now Moment, n *v1alpha1.Notice, around Around, limits Limits) Decision {
	if n.Status.Phase == v1alpha1.NoticeSending {
		return claimed(now, n, limits)
	}
	if asked, ok := resendAsked(n); ok {
		if asked.After(now.Machine) {
			return Decision{Action: Wait, At: asked}
		}
		return Decision{Action: Send}
	}
	switch {
	case ended(n):
		return Decision{Action: Rest}
	case n.Spec.Kind == v1alpha1.NoticeTest:
		return tested(now, n, limits)
	case muted(n):
		return Decision{Action: Supersede, Because: "the recipient does not want mail of this kind"}
	case n.Spec.DueAt.After(now.Policy):
		return Decision{Action: Wait, PolicyAt: n.Spec.DueAt.Time}
	case over(n, around.Since):
		return Decision{Action: Supersede, Because: "it was over before mail was set up"}
	}
	if n.Spec.Digest != "" {
		switch d := around.Digest; {
		case d == nil && !around.Newer:
			return settled(now, n, limits.DigestSettle, Leave)
		case d == nil || !carries(d, n) || d.Status.Phase == v1alpha1.NoticeSuperseded:
			// It came too late for the digest, and is a mail of its own.
		case ended(d):
			return Decision{Action: Follow}
		default:
			return Decision{Action: Wait} // for the digest, whose change is heard of
		}
	}
	if around.Newer {
		return Decision{Action: Supersede, Because: "a later warning says all that it would have said"}
	}
	return tried(now, n, limits)
}

// tried is a Notice that is to be sent, perhaps not for the first time.
func tried(now Moment, n *v1alpha1.Notice, limits Limits) Decision {
	if int(n.Status.Attempts) >= limits.Attempts {
		return Decision{Action: GiveUp, Because: "tried too often"}
	}
	// An instant further away than any retry was written by a clock that was wrong.
	if retry := n.Status.RetryAt; retry != nil && retry.After(now.Machine) && retry.Sub(now.Machine) <= 2*limits.LongestRetry {
		return Decision{Action: Wait, At: retry.Time}
	}
	return settled(now, n, limits.Settle, Send)
}

// testFor is for how long somebody is taken to wait for a test, in machine time.
const testFor = 24 * time.Hour

// tested is a Test that has not ended. It is due when it is made, whatever it says, and
// in no digest. Nobody waits for one that could not be tried for a day.
func tested(now Moment, n *v1alpha1.Notice, limits Limits) Decision {
	_, again := n.Annotations[v1alpha1.AnnotationResend]
	if n.Status.Attempts == 0 && !again && now.Machine.Sub(n.CreationTimestamp.Time) > testFor {
		return Decision{Action: Supersede, Because: "nobody waits for a test that could not be tried for a day"}
	}
	limits.Settle = 0 // it has no siblings
	return tried(now, n, limits)
}

// claimed is a Notice that somebody is sending, or was when the process died.
func claimed(now Moment, n *v1alpha1.Notice, limits Limits) Decision {
	at := n.Status.ClaimedAt
	if at != nil {
		if age := now.Machine.Sub(at.Time); age < limits.Lease && age > -limits.Lease {
			return Decision{Action: Wait, At: at.Add(limits.Lease)}
		}
	}
	if int(n.Status.Attempts) >= limits.Attempts {
		return Decision{Action: GiveUp, Because: "each attempt ended without an answer"}
	}
	return Decision{Action: Send}
}

// settled is the action, once whoever recorded n had the time to record, or to set
// aside, the others that belong to it.
func settled(now Moment, n *v1alpha1.Notice, settle time.Duration, action Action) Decision {
	if age := now.Machine.Sub(n.CreationTimestamp.Time); age >= 0 && age < settle {
		return Decision{Action: Wait, At: n.CreationTimestamp.Add(settle)}
	}
	return Decision{Action: action}
}

// ended tells whether a Notice came to its end.
func ended(n *v1alpha1.Notice) bool {
	switch n.Status.Phase {
	case v1alpha1.NoticeSent, v1alpha1.NoticeFailed, v1alpha1.NoticeSuperseded:
		return true
	}
	return false
}

// muted tells whether the recipient does not want it. Only of the optional kinds can
// that be said: the field takes no others.
func muted(n *v1alpha1.Notice) bool {
	return slices.Contains(n.Spec.Recipient.Mute, v1alpha1.OptionalNoticeKind(n.Spec.Kind))
}

// stale is how old news may be that was recorded before mail was set up.
const stale = 24 * time.Hour

// over tells whether all that a Notice says lay in the past when mail was set up.
func over(n *v1alpha1.Notice, since time.Time) bool {
	if since.IsZero() || !n.Spec.DueAt.Time.Before(since.Add(-stale)) {
		return false
	}
	return n.Spec.Deadline == nil || n.Spec.Deadline.Time.Before(since)
}
