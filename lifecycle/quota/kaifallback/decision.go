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

// Delays of changes to a group, in machine time.
const (
	// schedulerSettleDelay is the time that the scheduler may take to finish an attempt after it
	// was set to try only once.
	schedulerSettleDelay = 5 * time.Second
	// minMoveInterval is the minimum time between two moves of a group.
	minMoveInterval = time.Minute
)

// decision is the next change of a group. At most one of the first three fields is set.
type decision struct {
	// demote is the lower class that the group must have, because one of its pods has it.
	demote kaigroup.Class
	// tryOnce makes the scheduler stop trying the group in its node pool, before a move.
	// retryForever makes it try again without a limit, in every other state: room can come
	// where the group waits.
	tryOnce, retryForever bool
	// move is the next placement of the group.
	move *kaigroup.Placement
	// waitUntil is when to decide again. It is zero if no change is needed.
	waitUntil time.Time
}

// decide returns the next change of a group with these pods and placements. The placement does
// not change before notBefore; zero means unknown. Until shortly before a move, the scheduler
// tries the group again and again where it is.
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
	movable := others && !slices.ContainsFunc(pods, isScheduled)
	switch {
	case !movable && group.TriesOncePerShard():
		return decision{retryForever: true}
	case !movable:
		return decision{}
	case !group.TriesOncePerShard() && now.Before(notBefore):
		return decision{waitUntil: notBefore}
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

// preemptibleClass returns the class of a preemptible pod in a group that is not preemptible. The
// owner of the group set its class by a label, without a policy.
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

// usablePlaces returns the open placements to which all pods were admitted, in the order of the
// first pod's preference.
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

// admittedPools returns the names of the node pools that a pod may use.
func admittedPools(pod *corev1.Pod) []string {
	return strings.Split(pod.Annotations[v1alpha1.AnnotationNodePools], ",")
}

// nextPlace returns the placement after at, or the first after the last. It returns false if
// there is no other.
func nextPlace(at kaigroup.Placement, places []kaigroup.Placement) (kaigroup.Placement, bool) {
	current := slices.IndexFunc(places, func(p kaigroup.Placement) bool { return p.Queue == at.Queue })
	if len(places) == 0 || current >= 0 && len(places) == 1 {
		return kaigroup.Placement{}, false
	}
	return places[(current+1)%len(places)], true
}

// isScheduled reports whether a pod has a node.
func isScheduled(pod corev1.Pod) bool { return pod.Spec.NodeName != "" }
