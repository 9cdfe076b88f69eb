// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit"
)

// firstStatusTimeout is the time, in machine time, in which the kubelet reports a pod after its
// binding. It reports the pod within seconds after it assigned devices.
const firstStatusTimeout = time.Minute

// observeUnreportedPod returns a running pod in place of one that the kubelet does not report,
// but to which it assigned devices according to the agent: its status cannot be written, and
// would show neither its start nor its end. It returns other pods unchanged.
func (r *Reconciler) observeUnreportedPod(ctx context.Context, w *workload, pod *podcache.Pod) (*podcache.Pod, error) {
	if pod.Running || !pod.StartedAt.IsZero() {
		return pod, nil
	}
	node, err := inventory.GetGPUNode(ctx, r.Client, pod.Node)
	if err != nil || node == nil || node.Status.SampledAt == nil {
		return pod, err
	}
	sampled := node.Status.SampledAt.Time
	hasDevice := slices.ContainsFunc(node.Status.Pods, func(use v1alpha1.PodUsage) bool { return use.UID == pod.UID && len(use.Devices) > 0 })
	if !hasDevice || sampled.Sub(pod.BoundAt) < firstStatusTimeout {
		return pod, nil
	}
	running := *pod
	running.Running, running.StartedAt = true, pod.BoundAt
	if w.unreportedPods == nil {
		w.unreportedPods = map[types.UID]time.Time{}
	}
	w.unreportedPods[pod.UID] = sampled
	return &running, nil
}

// observeUtilization returns the latest use of the GPUs of any of the pods, and the oldest
// sample of their nodes. If one node has no fresh sample, utilization is unknown.
func (r *Reconciler) observeUtilization(ctx context.Context, pods []*podcache.Pod) (timelimit.Utilization, error) {
	u := timelimit.Utilization{Known: len(pods) > 0}
	for _, pod := range pods {
		node, err := inventory.GetGPUNode(ctx, r.Client, pod.Node)
		if err != nil || node == nil {
			return timelimit.Utilization{}, err
		}
		active, sampled, known := podUtilization(pod, node, policytime.MachineNow())
		if !known {
			return timelimit.Utilization{}, nil
		}
		if at := r.toPolicyTime(active); at.After(u.LastActive) {
			u.LastActive = at
		}
		if at := r.Clock.FromReal(sampled); u.SampledAt.IsZero() || at.Before(u.SampledAt) {
			u.SampledAt = at
		}
	}
	// The clock of a node can be ahead. Idle time ends now at the latest.
	if now := r.Clock.Now(); u.SampledAt.After(now) {
		u.SampledAt = now
	}
	if u.LastActive.After(u.SampledAt) {
		u.LastActive = u.SampledAt
	}
	return u, nil
}

// podUtilization returns a pod's last use and the time of the sample, in machine time. A pod
// that has not used its GPU since its start was last active at its start. The use is unknown
// without a last use: the agent cannot measure it.
func podUtilization(pod *podcache.Pod, node *v1alpha1.GPUNode, now time.Time) (active, sampled time.Time, known bool) {
	s := &node.Status
	if s.SampledAt == nil || now.Sub(s.SampledAt.Time).Abs() > inventory.SampleMaxAge {
		return time.Time{}, time.Time{}, false
	}
	at := slices.IndexFunc(s.Pods, func(use v1alpha1.PodUsage) bool { return use.UID == pod.UID })
	if at < 0 || s.Pods[at].LastActive == nil {
		return time.Time{}, time.Time{}, false
	}
	active = s.Pods[at].LastActive.Time
	if started := pod.EffectiveStart(); started.After(active) {
		active = started
	}
	return active, s.SampledAt.Time, true
}
