// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kaifallback

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/kaigroup"
)

// After how long a group is looked at again, in machine time.
const (
	// schedulerSettleDelay is how long a scheduler has to end what it began with a group that it
	// is not to try any more.
	schedulerSettleDelay = 5 * time.Second
	// minMoveInterval is the least time from one move of a group to the next.
	minMoveInterval = time.Minute
)

// decision is what is to be done with a group. At most one of its parts is set.
type decision struct {
	// demote is the class that the group is to have, since a pod of it has.
	demote kaigroup.Class
	// tryOnce has the group tried no more where it is; again, as often as there are
	// others.
	tryOnce, retryForever bool
	// move is where the group goes.
	move *kaigroup.Placement
	// waitUntil is until when nothing may be done; zero where there is nothing to do.
	waitUntil time.Time
}

// decide says what is to be done with a group that has these pods, in a project
// with these places. Nothing is done with its place before notBefore; zero is not
// known.
func decide(now time.Time, group kaigroup.Group, places []kaigroup.Placement, pods []corev1.Pod, notBefore time.Time) decision {
	if len(pods) == 0 {
		return decision{}
	}
	if class, lower := preemptibleClass(group, pods); lower {
		return decision{demote: class}
	}
	at, known := kaigroup.FindPlacement(places, group.Queue())
	if !known || !group.IsUnschedulable(at) {
		return decision{}
	}
	next, others := nextPlace(at, usablePlaces(places, pods))
	switch {
	case !others && group.TriesOncePerShard():
		return decision{retryForever: true}
	case !others, slices.ContainsFunc(pods, isScheduled):
		return decision{}
	case !group.TriesOncePerShard():
		return decision{tryOnce: true}
	case notBefore.IsZero():
		return decision{waitUntil: now.Add(schedulerSettleDelay)}
	case now.Before(notBefore):
		return decision{waitUntil: notBefore}
	default:
		return decision{move: &next}
	}
}

// preemptibleClass is the class of a group that cannot be preempted and has a pod that can:
// its owner's label said so, and no policy.
func preemptibleClass(group kaigroup.Group, pods []corev1.Pod) (kaigroup.Class, bool) {
	if group.Preemptible() {
		return "", false
	}
	for i := range pods {
		class := kaigroup.ParseClass(pods[i].Spec.PriorityClassName)
		if class.Preemptible() {
			return class, true
		}
	}
	return "", false
}

// usablePlaces are the places to which every one of the pods was admitted and that take
// pods, in the order of the first pod.
func usablePlaces(places []kaigroup.Placement, pods []corev1.Pod) []kaigroup.Placement {
	var open []kaigroup.Placement
	for _, name := range admittedPools(&pods[0]) {
		at := slices.IndexFunc(places, func(p kaigroup.Placement) bool { return p.Pool == name && !p.Closed })
		if at < 0 || slices.ContainsFunc(pods[1:], func(p corev1.Pod) bool { return !slices.Contains(admittedPools(&p), name) }) {
			continue
		}
		open = append(open, places[at])
	}
	return open
}

// admittedPools are the names of the pools that a pod may use.
func admittedPools(pod *corev1.Pod) []string {
	return strings.Split(pod.Annotations[v1alpha1.AnnotationNodePools], ",")
}

// nextPlace is the place after one, and the first after the last; false where there is
// no other.
func nextPlace(at kaigroup.Placement, places []kaigroup.Placement) (kaigroup.Placement, bool) {
	here := slices.IndexFunc(places, func(p kaigroup.Placement) bool { return p.Queue == at.Queue })
	if len(places) == 0 || here >= 0 && len(places) == 1 {
		return kaigroup.Placement{}, false
	}
	return places[(here+1)%len(places)], true
}

// isScheduled tells whether a pod has a node.
func isScheduled(pod corev1.Pod) bool { return pod.Spec.NodeName != "" }
