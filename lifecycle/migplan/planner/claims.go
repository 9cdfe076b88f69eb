// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/workload"
)

// annotationSelectedNode is the annotation by which kube-scheduler asks for a volume near a node. A
// claim has it from the moment at which the scheduler chose the node for a pod.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// maxVolumeClaims limits the volume claims that are read in one pass. Pods beyond it count as if
// their scheduler had chosen the node.
const maxVolumeClaims = 256

// listClaims lists the pods of each node whose spec may be written in this pass: those bound to the
// node and those in their binding cycle. It reads from the API server, since the cache may lag
// behind a binding.
func (r *Reconciler) listClaims(ctx context.Context, s *observedState, now time.Time) error {
	pending := r.pendingPods.Values()
	r.claimTimes.prune(now)
	reads := 0
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.taint == nil || n.observed == nil || n.taint.generation != n.observed.generation {
			continue
		}
		if _, settled := n.settledAt(now); !settled {
			continue
		}
		// The bound pods come last: a pod that is bound in between is then in one of the lists.
		claims, err := r.listPods(ctx, "status.nominatedNodeName", n.name)
		if err != nil {
			return err
		}
		selected, err := r.findSelectedPods(ctx, n, pending, &reads)
		if err != nil {
			return err
		}
		if err := r.listBoundPods(ctx, n, now); err != nil {
			return err
		}
		for _, pod := range append(claims, selected...) {
			if r.claimTimes.isRecent(pod.uid, n.name, s.previousState.nominations[pod.uid], now) {
				n.addNominated(pod)
			}
		}
		n.podsListed = true
	}
	return nil
}

// listBoundPods lists the pods that are bound to a node, and remembers what they leave free.
func (r *Reconciler) listBoundPods(ctx context.Context, n *node, now time.Time) error {
	pods, err := r.listPods(ctx, "spec.nodeName", n.name)
	if err != nil {
		return err
	}
	n.boundPods = pods
	r.usage.record(n, now)
	return nil
}

// claimTimes holds since when pods are observed in their binding cycle, by pod and node: a pod that
// never leaves it counts for nominationPeriod only.
type claimTimes map[claimKey]claimTime

type claimKey struct {
	pod  types.UID
	node string
}

type claimTime struct{ first, last time.Time }

// isRecent records that a pod is observed in its binding cycle, and reports whether it counts.
func (c claimTimes) isRecent(pod types.UID, node string, known nomination, now time.Time) bool {
	key := claimKey{pod, node}
	at, seen := c[key]
	if !seen {
		at.first = now
	}
	if known.node == node && known.since.Before(at.first) {
		at.first = known.since
	}
	at.last = now
	c[key] = at
	return now.Sub(at.first) < nominationPeriod
}

// prune forgets pods that have not been observed for an hour.
func (c claimTimes) prune(now time.Time) {
	maps.DeleteFunc(c, func(_ claimKey, at claimTime) bool { return now.Sub(at.last) > time.Hour })
}

func (r *Reconciler) listPods(ctx context.Context, field, name string) (all []boundPod, err error) {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.MatchingFields{field: name}); err != nil {
		return nil, fmt.Errorf("list pods with %s %s: %w", field, name, err)
	}
	for k := range pods.Items {
		if pod := &pods.Items[k]; !workload.IsPodTerminal(pod) {
			all = append(all, newBoundPod(pod))
		}
	}
	return all, nil
}

// addNominated adds a pod in its binding cycle, once.
func (n *node) addNominated(pod boundPod) {
	if !slices.ContainsFunc(n.boundPods, func(known boundPod) bool { return known.uid == pod.uid }) {
		pod.bound, pod.nominated = time.Time{}, true
		n.boundPods = append(n.boundPods, pod)
	}
}

// findSelectedPods finds the pods for which a scheduler chose the node and waits for a volume. Only
// pods that request an instance matter that is idle on the node.
func (r *Reconciler) findSelectedPods(ctx context.Context, n *node, pending []*pendingPod, reads *int) (selected []boundPod, err error) {
	for _, w := range pending {
		if len(w.volumeClaims) == 0 || !n.observed.hasIdle(&w.podRequest) {
			continue
		}
		chosen, err := r.isSelected(ctx, w, n.name, reads)
		if err != nil {
			return nil, err
		}
		if chosen {
			selected = append(selected, boundPod{uid: w.uid, instanceRequests: w.instanceRequests, resources: w.resources})
		}
	}
	return selected, nil
}

// isSelected reports whether a volume claim of a pod names the node.
func (r *Reconciler) isSelected(ctx context.Context, w *pendingPod, node string, reads *int) (bool, error) {
	for _, name := range w.volumeClaims {
		if *reads++; *reads > maxVolumeClaims {
			return true, nil
		}
		var volumeClaim corev1.PersistentVolumeClaim
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: name}, &volumeClaim)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("get PersistentVolumeClaim %s/%s: %w", w.namespace, name, err)
		}
		if volumeClaim.Annotations[annotationSelectedNode] == node {
			return true, nil
		}
	}
	return false, nil
}

// nodeUsage remembers by node what its pods requested when they were last listed.
type nodeUsage map[string]usageSample

type usageSample struct {
	used amounts
	// validUntil ends the sample; it is longer after each listing that showed no room.
	validUntil time.Time
	failures   int
	listedAt   time.Time
}

// record remembers the requests of the listed pods of a node, and updates what is free.
func (u nodeUsage) record(n *node, now time.Time) {
	var used amounts
	for i := range n.boundPods {
		used.add(&n.boundPods[i].resources)
	}
	sample := u[n.name]
	sample.used, sample.listedAt, sample.validUntil = used, now, now.Add(usageMaxAge)
	u[n.name] = sample
	n.free.subtract(&used)
}

// noteRoom remembers whether the last listing showed room. Without room it stays valid longer.
func (u nodeUsage) noteRoom(name string, room bool) {
	sample := u[name]
	if room {
		sample.failures = 0
	} else {
		sample.validUntil = sample.listedAt.Add(min(usageMaxAge<<min(sample.failures, 10), usageMaxAgeWithoutRoom))
		sample.failures++
	}
	u[name] = sample
}

// apply subtracts what a node's pods requested when they were last listed, and returns how long that
// is valid; zero if it is not.
func (u nodeUsage) apply(n *node, now time.Time) (validUntil time.Time) {
	sample, known := u[n.name]
	if !known || !sample.validUntil.After(now) {
		return time.Time{}
	}
	n.free.subtract(&sample.used)
	return sample.validUntil
}

func (u nodeUsage) prune(nodes map[string]*corev1.Node) {
	for name := range u {
		if nodes[name] == nil {
			delete(u, name)
		}
	}
}

// confirmRoom lists the pods of a node that is about to be tainted, and reports whether a request
// fits beside them. A node is not tainted for pods that cannot run on it.
func (r *Reconciler) confirmRoom(ctx context.Context, s *observedState, a *action, now time.Time) (bool, error) {
	sample := r.usage[a.node]
	if len(a.requests) == 0 || sample.listedAt.Equal(now) {
		return true, nil
	}
	n := node{name: a.node, free: newAmounts(s.nodeObjects[a.node].Status.Allocatable)}
	if err := r.listBoundPods(ctx, &n, now); err != nil {
		return false, err
	}
	room := slices.ContainsFunc(a.requests, func(i int) bool { return s.requests[i].resources.missing(&n.free) == "" })
	r.usage.noteRoom(a.node, room)
	return room, nil
}
