// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// snapshot is all that a decision is made from.
type snapshot struct {
	pools []pool
	// nodes are those of the pools, sorted by name.
	nodes []node
	// requests are the pods that wait, the most urgent first.
	requests []podRequest
	// previousState is what the last decision remembered.
	previousState planState
}

// planState is what is known beside the objects. To lose it delays a decision, and no more.
type planState struct {
	// offeredSince is since when an idle instance is there for a pod.
	offeredSince map[types.UID]time.Time
	// nodeBackoff are the nodes that were changed.
	nodeBackoff map[string]backoff
	// unknownHoldersUntil are nodes of which pods have whole GPUs, and nobody says which, until when
	// that is believed.
	unknownHoldersUntil map[string]time.Time
	// gpuBackoff are the GPUs whose layout could not be applied.
	gpuBackoff map[v1alpha1.GPUUUID]backoff
}

// backoff is until when nothing is done, after how many failures.
type backoff struct {
	until    time.Time
	failures int
}

// next is the pause after another failure, which begins with so long.
func (p backoff) next(now time.Time, first, longest time.Duration) backoff {
	length := first << min(p.failures, 10)
	return backoff{until: now.Add(min(length, longest)), failures: p.failures + 1}
}

// pool is a node pool that is cut.
type pool struct {
	name   string
	resets v1alpha1.MIGResets
	// layout is nil where the pool is planned from demand.
	layout []v1alpha1.MIGLayout
}

func (p *pool) isStatic() bool { return p.layout != nil }

// node is one of a pool's nodes.
type node struct {
	name string
	// pool is the index of its pool.
	pool int
	// taint is nil where the node is not being changed.
	taint *taint
	// unsuitableReason is why nothing can be cut there, by the node's labels; empty where it can.
	unsuitableReason string
	// allocatable are the node's allocatable GPUs and MIG instances.
	allocatable deviceCounts
	// observed is what the agent reports and the spec says; nil without a GPUNode.
	observed *observedNode
	// boundPods are the node's pods, read from the API server itself; known only where
	// the spec may be written.
	boundPods  []boundPod
	podsListed bool
}

// taint is the one that keeps pods from a node while it is changed.
type taint struct {
	// since is when it was put on; zero where nobody says.
	since time.Time
	// generation is that of the GPUNode then; -1 where nobody says.
	generation int64
}

// boundPod is a pod that is bound to a node and has not ended.
type boundPod struct {
	uid   types.UID
	bound time.Time
	// instanceRequests are the MIG instances that it asks for, and whole how many whole GPUs.
	instanceRequests []instanceRequest
	wholeGPUs        int
}

// instanceRequest is so many instances of a profile.
type instanceRequest struct {
	profile v1alpha1.MIGProfile
	count   int
}

// podRequest is a pod that waits for MIG instances.
type podRequest struct {
	uid                         types.UID
	namespace, name             string
	instanceRequests            []instanceRequest
	priority                    int32
	created, unschedulableSince time.Time
	// missesOtherResource tells that its scheduler does not miss the instances that it asks for.
	missesOtherResource bool
	// poolOrder are the indices of the pools that it may use, those that it likes first.
	poolOrder []int
	// feasible tells of each node whether the pod may be there.
	feasible []bool
}
