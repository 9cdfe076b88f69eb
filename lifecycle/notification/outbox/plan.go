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

// plan holds the next steps for all Notices at one moment.
type plan struct {
	// toSend holds the Notices to send, the most urgent first.
	toSend []*v1alpha1.Notice
	// toFinish holds the Notices that end without a mail of their own.
	toFinish []finishStep
	// digests holds the digests to create.
	digests []*v1alpha1.Notice
	// recheckAt (machine time) and recheckPolicyAt (policy time) are the next checks; zero for never.
	recheckAt, recheckPolicyAt time.Time
	// pending counts the unfinished Notices; oldestPending is when the first due one was
	// recorded, zero for none.
	pending       int
	oldestPending time.Time
	// superseded is the result of SupersededWarnings; byName maps all by name.
	superseded map[string]bool
	byName     map[string]*v1alpha1.Notice
	all        []v1alpha1.Notice
}

// finishStep is a Notice and its decision.
type finishStep struct {
	notice   *v1alpha1.Notice
	decision Decision
}

// newPlan decides on all Notices.
func newPlan(now Instant, notices []v1alpha1.Notice, since time.Time, limits Limits) *plan {
	p := &plan{
		superseded: SupersededWarnings(now.Policy, notices), all: notices, byName: make(map[string]*v1alpha1.Notice, len(notices)),
	}
	for i := range notices {
		p.byName[notices[i].Name] = &notices[i]
	}
	type digest struct{ name, to string }
	collected, incomplete := map[digest][]*v1alpha1.Notice{}, map[digest]bool{}
	for i := range notices {
		n := &notices[i]
		d := Decide(now, n, p.contextFor(n, since), limits)
		if !isFinished(n) {
			p.countPending(now, n)
		}
		key := digest{name: n.Spec.Digest, to: recipientAddress(n)}
		switch d.Action {
		case ActionNone:
		case ActionWait:
			p.recheckAt = earliestTime(p.recheckAt, d.RecheckAt)
			p.recheckPolicyAt = earliestTime(p.recheckPolicyAt, d.RecheckPolicyAt)
			incomplete[key] = incomplete[key] || n.Spec.Digest != "" && p.byName[n.Spec.Digest] == nil && d.RecheckPolicyAt.IsZero()
		case ActionAwaitDigest:
			collected[key] = append(collected[key], n)
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
	for _, key := range slices.SortedFunc(maps.Keys(collected), order) {
		if !incomplete[key] { // wait for Notices that are still being recorded
			p.digests = append(p.digests, newDigest(collected[key]))
		}
	}
	return p
}

// contextFor returns the other inputs of the decision on n.
func (p *plan) contextFor(n *v1alpha1.Notice, since time.Time) NoticeContext {
	result := NoticeContext{HasNewer: p.superseded[n.Name], MailEnabledAt: since}
	if n.Spec.Digest != "" {
		result.Digest = p.byName[n.Spec.Digest]
	}
	return result
}

// countPending counts an unfinished Notice.
func (p *plan) countPending(now Instant, n *v1alpha1.Notice) {
	p.pending++
	if !n.Spec.DueAt.After(now.Policy) {
		p.oldestPending = earliestTime(p.oldestPending, n.CreationTimestamp.Time)
	}
}

// Notices without a deadline count as due this long after DueAt.
const (
	defaultUrgencyDelay  = 4 * time.Hour
	optionalUrgencyDelay = 24 * time.Hour
)

// urgencyTime returns the sort key of toSend: earlier ones are sent first. It never changes, so
// no Notice starves.
func urgencyTime(n *v1alpha1.Notice) time.Time {
	switch {
	case n.Spec.Kind == v1alpha1.NoticeTest:
		return time.Time{} // an administrator waits for it
	case n.Spec.Kind == v1alpha1.NoticeDigest:
		return n.Spec.DueAt.Add(defaultUrgencyDelay)
	case n.Spec.IsOptional():
		return n.Spec.DueAt.Add(optionalUrgencyDelay)
	case n.Spec.Deadline != nil && n.Spec.Deadline.Time.Before(n.Spec.DueAt.Add(optionalUrgencyDelay)):
		return n.Spec.Deadline.Time
	case n.Spec.Deadline != nil:
		return n.Spec.DueAt.Add(optionalUrgencyDelay)
	}
	return n.Spec.DueAt.Add(defaultUrgencyDelay)
}

// earliestTime returns the earlier of two times; zero means none.
func earliestTime(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
