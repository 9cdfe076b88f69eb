// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// sample of their nodes. If one node has no fresh sample, utilization is unknown. It also returns the
// figures that the clock shows.
func (r *Reconciler) observeUtilization(ctx context.Context, pods []*podcache.Pod) (timelimit.Utilization, gpuSample, error) {
	if len(pods) == 0 {
		return timelimit.Utilization{}, gpuSample{}, nil
	}
	u := timelimit.Utilization{Known: true}
	sample, oldest := gpuSample{shareMiB: new(int64), memoryMiB: new(int64)}, time.Time{}
	for _, pod := range pods {
		node, err := inventory.GetGPUNode(ctx, r.Client, pod.Node)
		if err != nil {
			return timelimit.Utilization{}, gpuSample{}, err
		}
		use := freshUsage(pod, node, policytime.MachineNow())
		if use == nil {
			return timelimit.Utilization{}, gpuSample{}, nil
		}
		sample.addPod(use)
		if at := r.Clock.FromReal(node.Status.SampledAt.Time); oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
		active, known := lastActive(pod, use)
		u.Known = u.Known && known
		if at := r.toPolicyTime(active); at.After(u.LastActive) {
			u.LastActive = at
		}
	}
	// The clock of a node can be ahead. Idle time ends now at the latest.
	if now := r.Clock.Now(); oldest.After(now) {
		oldest = now
	}
	sample.sampledAt = &metav1.Time{Time: oldest.UTC().Truncate(time.Second)}
	if !u.Known {
		return timelimit.Utilization{}, sample, nil
	}
	u.SampledAt = oldest
	if u.LastActive.After(u.SampledAt) {
		u.LastActive = u.SampledAt
	}
	sample.lastActive = &metav1.Time{Time: u.LastActive.UTC().Truncate(time.Second)}
	return u, sample, nil
}

// freshUsage returns a pod's usage in the sample of its node, or nil without a fresh sample.
func freshUsage(pod *podcache.Pod, node *v1alpha1.GPUNode, now time.Time) *v1alpha1.PodUsage {
	if node == nil || node.Status.SampledAt == nil || now.Sub(node.Status.SampledAt.Time).Abs() > inventory.SampleMaxAge {
		return nil
	}
	at := slices.IndexFunc(node.Status.Pods, func(use v1alpha1.PodUsage) bool { return use.UID == pod.UID })
	if at < 0 {
		return nil
	}
	return &node.Status.Pods[at]
}

// lastActive returns a pod's last use, in machine time. A pod that has not used its GPU since its start
// was last active at its start. The use is unknown without a last use: the agent cannot measure it.
func lastActive(pod *podcache.Pod, use *v1alpha1.PodUsage) (active time.Time, known bool) {
	if use.LastActive == nil {
		return time.Time{}, false
	}
	active = use.LastActive.Time
	if started := pod.EffectiveStart(); started.After(active) {
		active = started
	}
	return active, true
}
