// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/workload"
)

// How waking is paced, in machine time.
const (
	// maxWakesPerPass is how many are woken in one pass: of room for more, the next pass
	// sees what is left.
	maxWakesPerPass = 10
	// wakeGracePeriod is how long somebody who was woken has to take the room.
	wakeGracePeriod = 5 * time.Second
	// rewakeInterval is after how long somebody is woken again who was woken and neither
	// took the room nor was refused: it waits for something else, or its event was
	// lost.
	rewakeInterval = 5 * time.Minute
)

// SelectToWake is whom to wake: those for whose next pod there is room in each quota
// that counts it, the oldest first. What somebody takes who was just woken is
// not offered to the next.
func SelectToWake(waiting []Workload, quotas []corev1.ResourceQuota, now time.Time) []Workload {
	left := remaindersOf(quotas)
	var chosen []Workload
	for _, w := range waiting {
		fits := left.podsThatFit(w.QuotaRejection)
		if fits == 0 {
			continue
		}
		switch since := now.Sub(w.WokenAt); {
		case w.WokenAt.IsZero():
		case since < wakeGracePeriod: // it is at it
			left.reserve(w.QuotaRejection, min(fits, w.MissingPods))
			continue
		case since < rewakeInterval && w.Last.Before(w.WokenAt.Truncate(time.Second)):
			continue
		}
		left.reserve(w.QuotaRejection, min(fits, w.MissingPods))
		if chosen = append(chosen, w); len(chosen) == maxWakesPerPass {
			break
		}
	}
	return chosen
}

// quotaRemainders are what is left in each quota, by its name and currency.
type quotaRemainders map[string]map[corev1.ResourceName]*quotaRemainder

type quotaRemainder struct {
	remaining workload.Milli
	// countsAllPods tells that the quota counts all pods, not only those of some classes.
	countsAllPods bool
}

func remaindersOf(quotas []corev1.ResourceQuota) quotaRemainders {
	all := quotaRemainders{}
	for i := range quotas {
		quota := &quotas[i]
		all[quota.Name] = map[corev1.ResourceName]*quotaRemainder{}
		for name, hard := range quota.Status.Hard {
			const prefix = corev1.DefaultResourceRequestsPrefix
			if len(name) <= len(prefix) || !isGPUQuotaResource(string(name[len(prefix):])) {
				continue
			}
			used := quota.Status.Used[name]
			all[quota.Name][name[len(prefix):]] = &quotaRemainder{
				remaining:     max(0, workload.Milli(hard.Value()-used.Value())),
				countsAllPods: len(quota.Spec.Scopes) == 0 && quota.Spec.ScopeSelector == nil,
			}
		}
	}
	return all
}

// affectedBy are the rooms that somebody needs who was refused so: that of the quota
// which refused it, and those which count every pod.
func (r quotaRemainders) affectedBy(refusal QuotaRejection) []*quotaRemainder {
	var needed []*quotaRemainder
	for name, by := range r {
		if room := by[refusal.Resource]; room != nil && (room.countsAllPods || name == refusal.Quota) {
			needed = append(needed, room)
		}
	}
	return needed
}

// podsThatFit is how many of them there is room for.
func (r quotaRemainders) podsThatFit(refusal QuotaRejection) int32 {
	if r[refusal.Quota][refusal.Resource] == nil {
		return 0 // not ours, or not counted yet
	}
	const most = 1 << 20
	fits := int64(most)
	for _, room := range r.affectedBy(refusal) {
		fits = min(fits, int64(room.remaining/refusal.Charge))
	}
	return int32(fits)
}

func (r quotaRemainders) reserve(refusal QuotaRejection, pods int32) {
	for _, room := range r.affectedBy(refusal) {
		room.remaining -= workload.Milli(pods) * refusal.Charge
	}
}
