// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// plan is what is to be done about all Notices at one moment.
type plan struct {
	// toSend is what is to be sent, the most urgent first.
	toSend []*v1alpha1.Notice
	// toFinish is what ends without being sent, or as its digest did.
	toFinish []finishStep
	// digests are to be made.
	digests []*v1alpha1.Notice
	// recheckAt and policyAt are when something that waits is to be looked at; zero for never.
	recheckAt, recheckPolicyAt time.Time
	// pending is how many are due or will be, and oldest when the first of those that
	// are due was recorded; zero where there is none.
	pending       int
	oldestPending time.Time
	// superseded is what Newer found, and all are the Notices, byName by their names.
	superseded map[string]bool
	byName     map[string]*v1alpha1.Notice
	all        []v1alpha1.Notice
}

// finishStep is a Notice and what was decided of it.
type finishStep struct {
	notice   *v1alpha1.Notice
	decision Decision
}

// newPlan looks at all Notices.
func newPlan(now Instant, notices []v1alpha1.Notice, since time.Time, limits Limits) *plan {
	p := &plan{superseded: SupersededWarnings(now.Policy, notices), all: notices, byName: make(map[string]*v1alpha1.Notice, len(notices))}
	for i := range notices {
		p.byName[notices[i].Name] = &notices[i]
	}
	type digest struct{ name, to string }
	collected, early := map[digest][]*v1alpha1.Notice{}, map[digest]bool{}
	for i := range notices {
		n := &notices[i]
		d := Decide(now, n, p.contextFor(n, since), limits)
		if !isFinished(n) {
			p.countPending(now, n)
		}
		in := digest{name: n.Spec.Digest, to: recipientAddress(n)}
		switch d.Action {
		case ActionNone:
		case ActionWait:
			p.recheckAt, p.recheckPolicyAt = earliestTime(p.recheckAt, d.RecheckAt), earliestTime(p.recheckPolicyAt, d.RecheckPolicyAt)
			early[in] = early[in] || n.Spec.Digest != "" && p.byName[n.Spec.Digest] == nil && d.RecheckPolicyAt.IsZero()
		case ActionAwaitDigest:
			collected[in] = append(collected[in], n)
		case ActionSend:
			p.toSend = append(p.toSend, n)
		default:
			p.toFinish = append(p.toFinish, finishStep{n, d})
		}
	}
	slices.SortFunc(p.toSend, func(a, b *v1alpha1.Notice) int {
		return cmp.Or(urgencyTime(a).Compare(urgencyTime(b)), strings.Compare(a.Name, b.Name))
	})
	order := func(a, b digest) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.to, b.to)) }
	for _, in := range slices.SortedFunc(maps.Keys(collected), order) {
		if !early[in] { // one that is being recorded is to be in it
			p.digests = append(p.digests, newDigest(collected[in]))
		}
	}
	return p
}

// contextFor is what else bears on n.
func (p *plan) contextFor(n *v1alpha1.Notice, since time.Time) NoticeContext {
	around := NoticeContext{HasNewer: p.superseded[n.Name], MailEnabledAt: since}
	if n.Spec.Digest != "" {
		around.Digest = p.byName[n.Spec.Digest]
	}
	return around
}

// countPending counts what waits.
func (p *plan) countPending(now Instant, n *v1alpha1.Notice) {
	p.pending++
	if !n.Spec.DueAt.After(now.Policy) {
		p.oldestPending = earliestTime(p.oldestPending, n.CreationTimestamp.Time)
	}
}

// How urgent is what has no deadline: as if it had one that long after it was due.
const (
	defaultUrgencyDelay  = 4 * time.Hour
	optionalUrgencyDelay = 24 * time.Hour
)

var optionalKinds = map[v1alpha1.NoticeKind]bool{
	v1alpha1.NoticeQuotaThreshold: true, v1alpha1.NoticeWeeklySummary: true,
	v1alpha1.NoticeShareExceeded: true, v1alpha1.NoticeProjectRenewed: true,
}

// urgencyTime is an instant: what has the earlier one is sent first. It never changes,
// so that what waits is overtaken by what is due before it alone, and is sent.
func urgencyTime(n *v1alpha1.Notice) time.Time {
	switch {
	case n.Spec.Kind == v1alpha1.NoticeTest:
		return time.Time{} // somebody sits and waits for it
	case n.Spec.Kind == v1alpha1.NoticeDigest:
		return n.Spec.DueAt.Add(defaultUrgencyDelay)
	case optionalKinds[n.Spec.Kind]:
		return n.Spec.DueAt.Add(optionalUrgencyDelay)
	case n.Spec.Deadline != nil && n.Spec.Deadline.Time.Before(n.Spec.DueAt.Add(optionalUrgencyDelay)):
		return n.Spec.Deadline.Time
	case n.Spec.Deadline != nil:
		return n.Spec.DueAt.Add(optionalUrgencyDelay)
	}
	return n.Spec.DueAt.Add(defaultUrgencyDelay)
}

// earliestTime is the earlier of two instants of which each may be none.
func earliestTime(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
