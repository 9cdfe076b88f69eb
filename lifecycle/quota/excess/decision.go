// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

// Limit is the most GPU quota that a set of pods may hold.
type Limit struct {
	Milli workload.Milli
	// Since is when the limit became as low as it is, in machine time. Pods that were created up
	// to then continue.
	Since time.Time
	// CountedSince is since when the limit counts the pods of a namespace, if that is later.
	CountedSince map[string]time.Time
}

// endsFor reports whether a pod can be ended for the limit: it was created under it.
func (l *Limit) endsFor(pod *podcache.Pod) bool {
	return pod.Milli > 0 && pod.CreatedAt.After(l.Since) && pod.CreatedAt.After(l.CountedSince[pod.Namespace])
}

// Decision is what follows from a limit for a set of pods.
type Decision struct {
	// Held is what the pods hold, Excess the part above the limit; 0 if they are within the limit.
	Held, Excess workload.Milli
	// End are the pods to end, the newest first. They are fewer than Excess requires if older
	// pods hold more than the limit, or if newer pods terminate already.
	End []*podcache.Pod
	// Terminating reports whether pods that terminate already are among the newest.
	Terminating bool
	// NextEnd is when the first grace period ends of the pods in Held that terminate; zero without such pods.
	NextEnd time.Time
	// Claims are the pods of a department within the guarantees of their projects for which the limit has no
	// room, the oldest first, and OverQuota the pods that can be preempted for them.
	Claims    []Claim
	OverQuota []*podcache.Pod
	// Preempt are those of OverQuota that make room for the Claims that are served by now.
	Preempt []*podcache.Pod
}

// endsPods reports whether the newest pods are ended, or terminate already.
func (d *Decision) endsPods() bool { return len(d.End) > 0 || d.Terminating }

// Decide returns the newest pods over quota to end, so that the others are within the limit. Older pods are
// preferred to newer ones, and a newer one stays if there is room for it in the end. Pods within the guarantee
// do not end: what exceeds the limit exceeds the guarantee. A pod that terminates holds its GPUs until its
// grace period ends: Kubernetes' quota counts it for at least as long, so that no pod is ended that the quota
// had room for. Among the newest pods, those that terminate already are not ended again, unless their grace
// period is to be shortened. Decide does not change the order of pods.
func Decide(pods []*podcache.Pod, guaranteed workload.Milli, limit Limit, now time.Time) Decision {
	var d Decision
	var counted, candidates []*podcache.Pod
	for _, pod := range pods {
		if pod.Deleting {
			if !now.Before(pod.GraceEndsAt) {
				continue
			}
			if d.NextEnd.IsZero() || pod.GraceEndsAt.Before(d.NextEnd) {
				d.NextEnd = pod.GraceEndsAt
			}
		}
		d.Held += pod.Milli
		counted = append(counted, pod)
	}
	d.Excess = max(0, d.Held-limit.Milli)
	if d.Excess == 0 {
		return d
	}
	within := withinGuarantee(counted, guaranteed)
	for _, pod := range counted {
		if limit.endsFor(pod) && !within[pod] {
			candidates = append(candidates, pod)
		}
	}
	slices.SortFunc(candidates, newestFirst)
	for _, pod := range choose(candidates, d.Excess) {
		if terminates(pod, now) {
			d.Terminating = true
		} else {
			d.End = append(d.End, pod)
		}
	}
	return d
}

// choose returns the first of the candidates that hold the amount together, or all of them, without those
// that are not necessary because others hold more.
func choose(candidates []*podcache.Pod, amount workload.Milli) []*podcache.Pod {
	var held workload.Milli
	count := 0
	for count < len(candidates) && held < amount {
		held += candidates[count].Milli
		count++
	}
	var chosen []*podcache.Pod
	for _, pod := range slices.Backward(candidates[:count]) {
		if held-pod.Milli >= amount {
			held -= pod.Milli
		} else {
			chosen = append(chosen, pod)
		}
	}
	slices.Reverse(chosen)
	return chosen
}

// terminates reports whether a pod is being deleted, with a grace period that is not to be shortened.
func terminates(pod *podcache.Pod, now time.Time) bool {
	grace := gracePeriod(pod, now)
	return pod.Deleting && (grace == nil || !pod.GraceEndsAt.After(now.Add(time.Duration(*grace)*time.Second)))
}

// newestFirst orders pods by creation, which has a precision of a second, then by name.
func newestFirst(a, b *podcache.Pod) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.Namespace, a.Namespace), strings.Compare(b.Name, a.Name))
}

// newPodAge is the age up to which an ended pod gets one second to terminate: it lost nothing yet, and
// the GPUs of the excess are free at once.
const newPodAge = time.Minute

// gracePeriod returns the grace period in seconds of a pod that is ended, or nil for its own.
func gracePeriod(pod *podcache.Pod, now time.Time) *int64 {
	if now.Sub(pod.CreatedAt) >= newPodAge {
		return nil
	}
	return ptr.To(int64(1))
}

// limitSettleTime is the time after the observation of a lower limit in which the API server may still admit
// pods under the former one, the difference between its clock and this one included.
const limitSettleTime = 5 * time.Second

// limits remembers since when limits are in force. A zero value is empty.
type limits map[string]Limit

// observe returns the limit of that key with the time since which it is as low. A limit that was
// not known before, or higher, is in force since the given time: it may have been higher before.
func (l limits) observe(key string, milli workload.Milli, since time.Time) Limit {
	last, known := l[key]
	if !known || milli < last.Milli {
		last.Since = since.Add(limitSettleTime)
	}
	last.Milli = milli
	l[key] = last
	return last
}
