// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

// Claim is a pod within the guarantee of its project for which the department's limit has no room.
type Claim struct {
	Pod *podcache.Pod
	// Milli is the part of its charge without room.
	Milli workload.Milli
}

// withinGuarantee returns the pods of one project that its guarantee covers: in the order not preemptible
// first, then oldest first, as long as their sum fits. The pod that crosses the guarantee, and those after
// it, are over quota.
func withinGuarantee(pods []*podcache.Pod, guaranteed workload.Milli) map[*podcache.Pod]bool {
	within := map[*podcache.Pod]bool{}
	for _, pod := range slices.SortedFunc(slices.Values(pods), func(a, b *podcache.Pod) int {
		return cmp.Or(compareBool(b.NonPreemptible, a.NonPreemptible), newestFirst(b, a))
	}) {
		if guaranteed -= pod.Milli; guaranteed < 0 {
			break
		}
		within[pod] = true
	}
	return within
}

func compareBool(a, b bool) int {
	number := map[bool]int{true: 1}
	return number[a] - number[b]
}

// DecideDepartment returns which pods exceed the limit of a department whose projects are counted alone, by
// namespace with the guarantees of its projects. Pods over quota that had no room when they were created are
// ended. A pod within the guarantee of its project is never ended for others: where it has no room, it
// claims it, and pods over quota are preempted for it. Where the guarantees themselves exceed the limit, the
// promise holds up to the limit: the newest pods above it count as over quota.
func DecideDepartment(pods []*podcache.Pod, guarantees map[string]workload.Milli, limit Limit) Decision {
	within := map[*podcache.Pod]bool{}
	byNamespace := map[string][]*podcache.Pod{}
	for _, pod := range pods {
		byNamespace[pod.Namespace] = append(byNamespace[pod.Namespace], pod)
	}
	for namespace, guaranteed := range guarantees {
		maps.Copy(within, withinGuarantee(byNamespace[namespace], guaranteed))
	}
	var d Decision
	var promised, kept workload.Milli
	for _, pod := range slices.SortedFunc(slices.Values(pods), func(a, b *podcache.Pod) int { return newestFirst(b, a) }) {
		d.Held += pod.Milli
		isWithin := within[pod] && promised+pod.Milli <= limit.Milli
		if isWithin {
			promised += pod.Milli
		}
		lacking := max(0, kept+pod.Milli-max(limit.Milli, kept))
		switch {
		case isWithin && lacking > 0:
			d.Claims = append(d.Claims, Claim{pod, lacking})
		case !isWithin && lacking > 0 && limit.endsFor(pod):
			d.End = append(d.End, pod)
			continue // its room is free for the next one
		case !isWithin && !pod.NonPreemptible:
			d.OverQuota = append(d.OverQuota, pod)
		}
		kept += pod.Milli
	}
	slices.Reverse(d.End)
	d.Excess = max(0, d.Held-limit.Milli)
	return d
}

// preempt chooses the pods that make room for claims: those that are evicted anyway, then the newest. Each
// stays if it holds more than is necessary.
func (d *Decision) preempt(served []Claim, announced map[types.UID]bool) {
	var amount workload.Milli
	for _, claim := range served {
		amount += claim.Milli
	}
	slices.SortFunc(d.OverQuota, func(a, b *podcache.Pod) int {
		return cmp.Or(compareBool(announced[b.UID], announced[a.UID]), newestFirst(a, b))
	})
	d.Preempt = choose(d.OverQuota, amount)
}

// Times of the announcements that the pods of one project cause, in machine time.
const (
	// roundDelay is the age of the oldest claim at which its round begins: the pods of a Job are created one
	// after the other.
	roundDelay = 10 * time.Second
	// roundInterval is the least time between two rounds of a project: creating and deleting pods within a
	// guarantee interrupts others no more often.
	roundInterval = 10 * time.Minute
)

// round is the last round of announcements for the claims of a project.
type round struct {
	began time.Time
	// claimants are the pods whose claims it serves.
	claimants map[types.UID]bool
}

// rounds are the last rounds by namespace.
type rounds map[string]round

// serve returns the claims of the rounds that have begun, after it began those that are due, and the time
// until the next one is due; 0 if none is.
func (r rounds) serve(claims []Claim, now time.Time) (served []Claim, next time.Duration) {
	waiting := map[string][]Claim{}
	for _, claim := range claims {
		if r[claim.Pod.Namespace].claimants[claim.Pod.UID] {
			served = append(served, claim)
		} else {
			waiting[claim.Pod.Namespace] = append(waiting[claim.Pod.Namespace], claim)
		}
	}
	for namespace, all := range waiting {
		last := r[namespace]
		due := all[0].Pod.CreatedAt.Add(roundDelay)
		if after := last.began.Add(roundInterval); !last.began.IsZero() && after.After(due) {
			due = after
		}
		if wait := due.Sub(now); wait > 0 {
			if next == 0 || wait < next {
				next = wait
			}
			continue
		}
		begun := round{now, map[types.UID]bool{}}
		for _, claim := range claims { // those of the last round, too
			if claim.Pod.Namespace == namespace {
				begun.claimants[claim.Pod.UID] = true
			}
		}
		r[namespace] = begun
		served = append(served, all...)
	}
	slices.SortFunc(served, func(a, b Claim) int { return newestFirst(b.Pod, a.Pod) })
	return served, next
}
