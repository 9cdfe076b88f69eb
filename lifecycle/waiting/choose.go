// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/workload"
)

// How waking is paced, in machine time.
const (
	// maxWakes is how many are woken in one pass: of room for more, the next pass
	// sees what is left.
	maxWakes = 10
	// trying is how long somebody who was woken has to take the room.
	trying = 5 * time.Second
	// silent is after how long somebody is woken again who was woken and neither
	// took the room nor was refused: it waits for something else, or its event was
	// lost.
	silent = 5 * time.Minute
)

// Choose is whom to wake: those for whose next pod there is room in each quota
// that counts it, the oldest first. What somebody takes who was just woken is
// not offered to the next.
func Choose(waiting []Workload, quotas []corev1.ResourceQuota, now time.Time) []Workload {
	left := roomIn(quotas)
	var chosen []Workload
	for _, w := range waiting {
		fits := left.pods(w.Refusal)
		if fits == 0 {
			continue
		}
		switch since := now.Sub(w.Woken); {
		case w.Woken.IsZero():
		case since < trying: // it is at it
			left.take(w.Refusal, min(fits, w.Pods))
			continue
		case since < silent && w.Last.Before(w.Woken.Truncate(time.Second)):
			continue
		}
		left.take(w.Refusal, min(fits, w.Pods))
		if chosen = append(chosen, w); len(chosen) == maxWakes {
			break
		}
	}
	return chosen
}

// rooms are what is left in each quota, by its name and currency.
type rooms map[string]map[corev1.ResourceName]*room

type room struct {
	left workload.Milli
	// whole tells that the quota counts all pods, not only those of some classes.
	whole bool
}

func roomIn(quotas []corev1.ResourceQuota) rooms {
	all := rooms{}
	for i := range quotas {
		quota := &quotas[i]
		all[quota.Name] = map[corev1.ResourceName]*room{}
		for name, hard := range quota.Status.Hard {
			const prefix = corev1.DefaultResourceRequestsPrefix
			if len(name) <= len(prefix) || !isCurrency(string(name[len(prefix):])) {
				continue
			}
			used := quota.Status.Used[name]
			all[quota.Name][name[len(prefix):]] = &room{
				left:  max(0, workload.Milli(hard.Value()-used.Value())),
				whole: len(quota.Spec.Scopes) == 0 && quota.Spec.ScopeSelector == nil,
			}
		}
	}
	return all
}

// of are the rooms that somebody needs who was refused so: that of the quota
// which refused it, and those which count every pod.
func (r rooms) of(refusal Refusal) []*room {
	var needed []*room
	for name, by := range r {
		if room := by[refusal.Currency]; room != nil && (room.whole || name == refusal.Quota) {
			needed = append(needed, room)
		}
	}
	return needed
}

// pods is how many of them there is room for.
func (r rooms) pods(refusal Refusal) int32 {
	if r[refusal.Quota][refusal.Currency] == nil {
		return 0 // not ours, or not counted yet
	}
	const most = 1 << 20
	fits := int64(most)
	for _, room := range r.of(refusal) {
		fits = min(fits, int64(room.left/refusal.Share))
	}
	return int32(fits)
}

func (r rooms) take(refusal Refusal, pods int32) {
	for _, room := range r.of(refusal) {
		room.left -= workload.Milli(pods) * refusal.Share
	}
}
