// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// pausePollInterval is the time between two listings of a node's pods while its clients end.
const pausePollInterval = 2 * time.Second

// clientLabels holds the values of a node's labels of NVIDIA's GPU clients.
type clientLabels map[string]string

func clientsOf(node *corev1.Node) clientLabels {
	var clients clientLabels
	for _, key := range v1alpha1.GPUClientLabels() {
		if value, found := node.Labels[key]; found {
			if clients == nil {
				clients = clientLabels{}
			}
			clients[key] = value
		}
	}
	return clients
}

// paused reports whether Sluice pauses a client.
func (c clientLabels) paused() bool {
	for _, value := range c {
		if _, ours := v1alpha1.ResumedGPUClient(value); ours {
			return true
		}
	}
	return false
}

// pausedByOther reports whether another program pauses a client for a while, as NVIDIA's driver manager
// and MIG manager do. It starts the client again whatever Sluice does meanwhile.
func (c clientLabels) pausedByOther() bool {
	for _, value := range c {
		if _, ours := v1alpha1.ResumedGPUClient(value); !ours && strings.Contains(value, "paused-for-") {
			return true
		}
	}
	return false
}

// pausePatch returns the labels to change so that the clients end. Values other than "true" are an
// administrator's or another program's, and stay.
func (c clientLabels) pausePatch() map[string]string {
	patch := map[string]string{}
	for key, value := range c {
		if value == "true" {
			patch[key] = v1alpha1.GPUClientPaused
		}
	}
	return patch
}

// resumePatch returns the labels to change so that the clients that Sluice pauses start again.
func (c clientLabels) resumePatch() map[string]string {
	patch := map[string]string{}
	for key, value := range c {
		if resumed, ours := v1alpha1.ResumedGPUClient(value); ours {
			patch[key] = resumed
		}
	}
	return patch
}

// clientNames returns the names of the clients of these labels: dcgm, device-plugin.
func clientNames(patch map[string]string) string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		names = append(names, strings.TrimPrefix(key, "nvidia.com/gpu.deploy."))
	}
	return strings.Join(names, ", ")
}

// isClientPod reports whether a pod ends when the client labels of its node change: its DaemonSet
// selects nodes by one of them.
func isClientPod(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" &&
		slices.ContainsFunc(v1alpha1.GPUClientLabels(), func(key string) bool { return pod.Spec.NodeSelector[key] != "" })
}

// needsPause reports whether the drafted change of a node changes a MIG mode or resets a GPU, and its
// pool has the clients paused for that.
func (d *draft) needsPause(at int) bool {
	n := &d.nodes[at]
	if !d.pools[n.pool].pause || n.observed == nil {
		return false
	}
	spec := d.desiredSpec(at)
	return slices.ContainsFunc(n.observed.gpus, func(g gpu) bool {
		i := slices.IndexFunc(spec, func(desired v1alpha1.DesiredGPU) bool { return desired.UUID == g.uuid })
		return i >= 0 && (spec[i].MIGEnabled != g.migEnabled || g.resetPending)
	})
}

// pauseNode pauses the clients of a node whose pods are listed, and reports whether all have ended. It
// gives up if that takes too long.
//
// Without the device plugin the kubelet rejects pods that were bound before (invariant 7). So the clients
// are paused only when each GPU pod of the node has its devices and none is in its binding cycle.
func (d *draft) pauseNode(at int) bool {
	n := &d.nodes[at]
	var starting, running []string
	claimed := d.nodeDrafts[at].claimed
	for i := range n.boundPods {
		switch pod := &n.boundPods[i]; {
		case pod.client:
			running = append(running, pod.name)
		case !pod.usesGPU():
		case pod.nominated:
			claimed = true
		case !pod.started:
			starting = append(starting, pod.name)
		}
	}
	since, known := d.previousState.pausedSince[n.name]
	if !known {
		since = d.now
	}
	pausing := len(n.clients.pausePatch()) > 0
	switch {
	case claimed:
		d.releaseNode(at, outcomeAbandoned, "a pod may be about to be bound to the node, which then needs the device plugin")
	case len(starting) > 0 && d.now.Sub(n.taint.since) >= settleTimeout:
		d.releaseNode(at, outcomeTimedOut, fmt.Sprintf("the kubelet has not started %s within %s of the node's taint",
			joinLimited(starting), settleTimeout))
	case len(starting) > 0:
		d.requeueAt(d.now.Add(pausePollInterval))
	case !pausing && len(running) == 0 && !n.clients.pausedByOther():
		return true
	case d.now.Sub(since) >= drainTimeout && n.clients.pausedByOther():
		d.releaseNode(at, outcomeTimedOut, "another program pauses the GPU clients, as NVIDIA's driver manager does during an upgrade")
	case d.now.Sub(since) >= drainTimeout && pausing:
		d.releaseNode(at, outcomeTimedOut, fmt.Sprintf("another program sets the labels nvidia.com/gpu.deploy.* of the node back: %s",
			clientNames(n.clients.pausePatch())))
	case d.now.Sub(since) >= drainTimeout:
		d.releaseNode(at, outcomeTimedOut, fmt.Sprintf("GPU clients still run %s after Sluice paused them: %s; find out why these pods do not end",
			drainTimeout, joinLimited(running)))
	default:
		if pausing {
			d.addAction(action{verb: pauseClients, node: n.name})
		}
		d.nextState.pausedSince[n.name] = since
		d.requeueAt(d.now.Add(pausePollInterval))
	}
	return false
}

// labelsBeforePause remembers by node the labels before its clients were paused. GPU feature discovery
// removes its labels when it ends, and pods may select nodes by them.
type labelsBeforePause map[string]map[string]string

// restore returns the node with the labels of NVIDIA that it lost while its clients are paused.
func (l labelsBeforePause) restore(node *corev1.Node) *corev1.Node {
	if !clientsOf(node).paused() {
		delete(l, node.Name)
		if repartitioningTaint(node) != nil {
			l[node.Name] = node.Labels
		}
		return node
	}
	restored := *node
	restored.Labels = maps.Clone(node.Labels)
	for key, value := range l[node.Name] {
		_, found := restored.Labels[key]
		if !found && strings.HasPrefix(key, "nvidia.com/") && !slices.Contains(v1alpha1.GPUClientLabels(), key) {
			restored.Labels[key] = value
		}
	}
	return &restored
}
