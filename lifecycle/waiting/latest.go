// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reasonFailedCreate is that of the events in which Kubernetes' controllers say
// that they could not make a pod.
const reasonFailedCreate = "FailedCreate"

// stale is after how long without a new refusal nobody waits any more: more than
// the longest that a controller lets pass between two tries, 1000 s.
const stale = 20 * time.Minute

// Refused is an object whose pods were refused.
type Refused struct {
	// Kind, Namespace, Name and UID are the object's.
	Kind, Namespace, Name string
	UID                   types.UID
	// Refusal is the latest.
	Refusal
	// First and Last are when it was refused, to the second.
	First, Last time.Time
}

// Latest are the objects of which the last that was heard is that their pods did
// not fit into a quota, oldest first. A later failure for another reason means
// that they do not wait for quota.
func Latest(events []corev1.Event, now time.Time) []Refused {
	type heard struct {
		refused Refused
		quota   bool
	}
	by := map[types.UID]heard{}
	for i := range events {
		event := &events[i]
		about := &event.InvolvedObject
		first, last := span(event)
		if event.Reason != reasonFailedCreate || kinds[about.Kind].object == nil || now.Sub(last) > stale {
			continue
		}
		refusal, quota := ParseRefusal(event.Message)
		known, before := by[about.UID]
		if before && known.refused.First.Before(first) {
			first = known.refused.First
		}
		if before && (last.Before(known.refused.Last) || last.Equal(known.refused.Last) && !quota) {
			known.refused.First = first
			by[about.UID] = known
			continue
		}
		by[about.UID] = heard{quota: quota, refused: Refused{
			Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID,
			Refusal: refusal, First: first, Last: last,
		}}
	}
	var latest []Refused
	for h := range maps.Values(by) {
		if h.quota {
			latest = append(latest, h.refused)
		}
	}
	slices.SortFunc(latest, func(a, b Refused) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return latest
}

// span is from when to when an event was seen, in either form of events.
func span(event *corev1.Event) (first, last time.Time) {
	first, last = event.FirstTimestamp.Time, event.LastTimestamp.Time
	if first.IsZero() {
		first = event.EventTime.Time
	}
	if first.IsZero() {
		first = event.CreationTimestamp.Time
	}
	if event.Series != nil && event.Series.LastObservedTime.After(last) {
		last = event.Series.LastObservedTime.Time
	}
	if last.Before(first) {
		last = first
	}
	return first, last
}
