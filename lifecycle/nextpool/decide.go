// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nextpool

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
	// settle is how long a scheduler has to end what it began with a group that it
	// is not to try any more.
	settle = 5 * time.Second
	// between is the least time from one move of a group to the next.
	between = time.Minute
)

// step is what is to be done with a group. At most one of its parts is set.
type step struct {
	// demote is the class that the group is to have, since a pod of it has.
	demote kaigroup.Class
	// once has the group tried no more where it is; again, as often as there are
	// others.
	once, again bool
	// move is where the group goes.
	move *kaigroup.Place
	// wait is until when nothing may be done; zero where there is nothing to do.
	wait time.Time
}

// decide says what is to be done with a group that has these pods, in a project
// with these places. Nothing is done with its place before notBefore; zero is not
// known.
func decide(now time.Time, group kaigroup.Group, places []kaigroup.Place, pods []corev1.Pod, notBefore time.Time) step {
	if len(pods) == 0 {
		return step{}
	}
	if class, lower := demoted(group, pods); lower {
		return step{demote: class}
	}
	at, known := kaigroup.Find(places, group.Queue())
	if !known || !group.Refused(at) {
		return step{}
	}
	next, others := after(at, usable(places, pods))
	switch {
	case !others && group.Once():
		return step{again: true}
	case !others, slices.ContainsFunc(pods, placed):
		return step{}
	case !group.Once():
		return step{once: true}
	case notBefore.IsZero():
		return step{wait: now.Add(settle)}
	case now.Before(notBefore):
		return step{wait: notBefore}
	default:
		return step{move: &next}
	}
}

// demoted is the class of a group that cannot be preempted and has a pod that can:
// its owner's label said so, and no policy.
func demoted(group kaigroup.Group, pods []corev1.Pod) (kaigroup.Class, bool) {
	if group.Preemptible() {
		return "", false
	}
	for i := range pods {
		class := kaigroup.ClassOf(pods[i].Spec.PriorityClassName)
		if class.Preemptible() {
			return class, true
		}
	}
	return "", false
}

// usable are the places to which every one of the pods was admitted and that take
// pods, in the order of the first pod.
func usable(places []kaigroup.Place, pods []corev1.Pod) []kaigroup.Place {
	var open []kaigroup.Place
	for _, name := range admittedTo(&pods[0]) {
		at := slices.IndexFunc(places, func(p kaigroup.Place) bool { return p.Pool == name && !p.Closed })
		if at < 0 || slices.ContainsFunc(pods[1:], func(p corev1.Pod) bool { return !slices.Contains(admittedTo(&p), name) }) {
			continue
		}
		open = append(open, places[at])
	}
	return open
}

// admittedTo are the names of the pools that a pod may use.
func admittedTo(pod *corev1.Pod) []string {
	return strings.Split(pod.Annotations[v1alpha1.AnnotationNodePools], ",")
}

// after is the place after one, and the first after the last; false where there is
// no other.
func after(at kaigroup.Place, places []kaigroup.Place) (kaigroup.Place, bool) {
	here := slices.IndexFunc(places, func(p kaigroup.Place) bool { return p.Queue == at.Queue })
	if len(places) == 0 || here >= 0 && len(places) == 1 {
		return kaigroup.Place{}, false
	}
	return places[(here+1)%len(places)], true
}

// placed tells whether a pod has a node.
func placed(pod corev1.Pod) bool { return pod.Spec.NodeName != "" }
