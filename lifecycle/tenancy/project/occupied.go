// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/policies/input"
)

// Limits of the time for which the report of a pod counts that the API server no longer has, in machine time.
const (
	// occupiedSettleTime is the time that the kubelet may need after the end of a pod to release its GPUs.
	occupiedSettleTime = 5 * time.Second
	// occupiedMaxAge is the time for which a report counts without a newer sample of the node, so that
	// an agent that is gone does not hold a project's quota.
	occupiedMaxAge = inventory.SampleMaxAge
)

// occupied remembers since when agents report pods that the API server no longer has. The zero value
// is empty. It is safe for concurrent use.
type occupied struct {
	mu    sync.Mutex
	since map[occupiedKey]time.Time
}

type occupiedKey struct {
	node string
	uid  types.UID
}

// observe returns the time since which a node reports each of these pods, and forgets its others of
// the namespace.
func (o *occupied) observe(node, namespace string, gone []types.UID, now time.Time) map[types.UID]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	since := map[types.UID]time.Time{}
	for _, uid := range gone {
		since[uid] = now
		if known, ok := o.since[occupiedKey{node, uid}]; ok {
			since[uid] = known
		}
	}
	for key := range o.since {
		if key.node == node && strings.HasPrefix(string(key.uid), namespace+"/") {
			delete(o.since, key)
		}
	}
	for uid, at := range since {
		if o.since == nil {
			o.since = map[occupiedKey]time.Time{}
		}
		o.since[occupiedKey{node, uid}] = at
	}
	return since
}

// goneUID returns the UID under which an agent reports a pod that the API server no longer has while
// the kubelet still holds its devices: the pod's namespace and name.
func goneUID(pod *v1alpha1.PodUsage) (types.UID, bool) {
	uid := types.UID(pod.Namespace + "/" + pod.Name)
	return uid, pod.UID == uid && len(pod.Devices) > 0
}

// observeOccupied returns the pods of the project that are gone from the API and still hold GPUs, by
// the reports of the nodes' agents: force-deleted ones whose processes run on. No quota counts them.
// settling reports that others are not counted yet.
func (r *Reconciler) observeOccupied(
	ctx context.Context, project *v1alpha1.Project, pools []input.NodePool,
) (held []UncountedPod, settling bool, err error) {
	var nodes v1alpha1.GPUNodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return nil, false, fmt.Errorf("list GPUNodes: %w", err)
	}
	namespace, now := project.NamespaceName(), policytime.MachineNow()
	for i := range nodes.Items {
		node := &nodes.Items[i]
		var gone []types.UID
		for j := range node.Status.Pods {
			if uid, ok := goneUID(&node.Status.Pods[j]); ok && node.Status.Pods[j].Namespace == namespace {
				gone = append(gone, uid)
			}
		}
		since := r.occupied.observe(node.Name, namespace, gone, now)
		if len(gone) == 0 {
			continue
		}
		pool, err := r.poolOfNode(ctx, node.Name, pools)
		if err != nil {
			return nil, false, err
		}
		found, waits := FindOccupied(node, pool, since, now)
		held, settling = append(held, found...), settling || waits
	}
	slices.SortFunc(held, func(a, b UncountedPod) int { return cmp.Compare(a.Pod, b.Pod) })
	return held, settling, nil
}

// poolOfNode returns the project's pool of a node, or nil.
func (r *Reconciler) poolOfNode(ctx context.Context, name string, pools []input.NodePool) (*input.NodePool, error) {
	var all v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list node pools: %w", err)
	}
	var node corev1.Node
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		return nil, client.IgnoreNotFound(err) // without a node, no process runs
	}
	names := inventory.PoolsForNode(&node, all.Items)
	at := slices.IndexFunc(pools, func(p input.NodePool) bool { return len(names) == 1 && names[0] == p.Name })
	if at < 0 {
		return nil, nil
	}
	return &pools[at], nil
}

// FindOccupied returns what pods that are gone hold of a node, by the times since which its agent
// reports them: after occupiedSettleTime, and up to occupiedMaxAge after the node's last sample, or
// after the first report if there is none. It also reports whether some are to count later.
func FindOccupied(
	node *v1alpha1.GPUNode, pool *input.NodePool, since map[types.UID]time.Time, now time.Time,
) (held []UncountedPod, settling bool) {
	if pool == nil {
		return nil, false
	}
	for i := range node.Status.Pods {
		pod := &node.Status.Pods[i]
		uid, gone := goneUID(pod)
		first, known := since[uid]
		if !gone || !known {
			continue
		}
		last := first
		if at := node.Status.SampledAt; at != nil && at.After(first) {
			last = at.Time
		}
		switch {
		case now.Before(first.Add(occupiedSettleTime)):
			settling = true
		case now.Before(last.Add(occupiedMaxAge)):
			// What the pod was charged is unknown, and so is whether it may be preempted: the guarantee
			// is lowered only with the limit.
			held = append(held, UncountedPod{Pod: pod.Name, Pool: pool.Name, Uncharged: heldCharge(node, pool, pod), Preemptible: true, Gone: true})
		}
	}
	return held, settling
}

// heldCharge returns the quota of a pod's devices: the price of each MIG instance, a replica of a GPU
// that the device plugin divides, or a whole GPU.
func heldCharge(node *v1alpha1.GPUNode, pool *input.NodePool, pod *v1alpha1.PodUsage) workload.Milli {
	var sum workload.Milli
	for _, device := range pod.Devices {
		charge := workload.Milli(1000)
		for i := range pool.Products {
			if replicas := pool.Products[i].Replicas; replicas > 1 {
				charge = min(charge, workload.Milli(1000/replicas))
			}
		}
		for i := range node.Status.GPUs {
			for _, instance := range node.Status.GPUs[i].Instances {
				if instance.UUID == device {
					charge = migCharge(workload.Request{MIGProfile: instance.Profile}, pool)
				}
			}
		}
		sum += charge
	}
	return sum
}
