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
	// send is what is to be sent, the most urgent first.
	send []*v1alpha1.Notice
	// aside is what ends without being sent, or as its digest did.
	aside []step
	// digests are to be made.
	digests []*v1alpha1.Notice
	// at and policyAt are when something that waits is to be looked at; zero for never.
	at, policyAt time.Time
	// waiting is how many are due or will be, and oldest when the first of those that
	// are due was recorded; zero where there is none.
	waiting int
	oldest  time.Time
	// newer is what Newer found, and all are the Notices, byName by their names.
	newer  map[string]bool
	byName map[string]*v1alpha1.Notice
	all    []v1alpha1.Notice
}

// step is a Notice and what was decided of it.
type step struct {
	notice   *v1alpha1.Notice
	decision Decision
}

// survey looks at all Notices.
func survey(now Moment, notices []v1alpha1.Notice, since time.Time, limits Limits) *plan {
	p := &plan{newer: Newer(now.Policy, notices), all: notices, byName: make(map[string]*v1alpha1.Notice, len(notices))}
	for i := range notices {
		p.byName[notices[i].Name] = &notices[i]
	}
	type digest struct{ name, to string }
	collected, early := map[digest][]*v1alpha1.Notice{}, map[digest]bool{}
	for i := range notices {
		n := &notices[i]
		d := Decide(now, n, p.around(n, since), limits)
		if !ended(n) {
			p.count(now, n)
		}
		in := digest{name: n.Spec.Digest, to: addressOf(n)}
		switch d.Action {
		case Rest:
		case Wait:
			p.at, p.policyAt = sooner(p.at, d.At), sooner(p.policyAt, d.PolicyAt)
			early[in] = early[in] || n.Spec.Digest != "" && p.byName[n.Spec.Digest] == nil && d.PolicyAt.IsZero()
		case Leave:
			collected[in] = append(collected[in], n)
		case Send:
			p.send = append(p.send, n)
		default:
			p.aside = append(p.aside, step{n, d})
		}
	}
	slices.SortFunc(p.send, func(a, b *v1alpha1.Notice) int {
		return cmp.Or(urgency(a).Compare(urgency(b)), strings.Compare(a.Name, b.Name))
	})
	order := func(a, b digest) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.to, b.to)) }
	for _, in := range slices.SortedFunc(maps.Keys(collected), order) {
		if !early[in] { // one that is being recorded is to be in it
			p.digests = append(p.digests, digestOf(collected[in]))
		}
	}
	return p
}

// around is what else bears on n.
func (p *plan) around(n *v1alpha1.Notice, since time.Time) Around {
	around := Around{Newer: p.newer[n.Name], Since: since}
	if n.Spec.Digest != "" {
		around.Digest = p.byName[n.Spec.Digest]
	}
	return around
}

// count counts what waits.
func (p *plan) count(now Moment, n *v1alpha1.Notice) {
	p.waiting++
	if !n.Spec.DueAt.After(now.Policy) {
		p.oldest = sooner(p.oldest, n.CreationTimestamp.Time)
	}
}

// How urgent is what has no deadline: as if it had one that long after it was due.
const (
	newsUrgency     = 4 * time.Hour
	optionalUrgency = 24 * time.Hour
)

var optionalKinds = map[v1alpha1.NoticeKind]bool{
	v1alpha1.NoticeQuotaThreshold: true, v1alpha1.NoticeWeeklySummary: true,
	v1alpha1.NoticeOverShare: true, v1alpha1.NoticeProjectRenewed: true,
}

// urgency is an instant: what has the earlier one is sent first. It never changes,
// so that what waits is overtaken by what is due before it alone, and is sent.
func urgency(n *v1alpha1.Notice) time.Time {
	switch {
	case n.Spec.Kind == v1alpha1.NoticeTest:
		return time.Time{} // somebody sits and waits for it
	case n.Spec.Kind == v1alpha1.NoticeDigest:
		return n.Spec.DueAt.Add(newsUrgency)
	case optionalKinds[n.Spec.Kind]:
		return n.Spec.DueAt.Add(optionalUrgency)
	case n.Spec.Deadline != nil && n.Spec.Deadline.Time.Before(n.Spec.DueAt.Add(optionalUrgency)):
		return n.Spec.Deadline.Time
	case n.Spec.Deadline != nil:
		return n.Spec.DueAt.Add(optionalUrgency)
	}
	return n.Spec.DueAt.Add(newsUrgency)
}

// sooner is the earlier of two instants of which each may be none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
