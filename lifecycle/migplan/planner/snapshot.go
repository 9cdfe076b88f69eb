// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/migplan/preemption"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// snapshot holds the complete input of a decision.
type snapshot struct {
	pools []pool
	// nodes holds the nodes of the pools, sorted by name.
	nodes []node
	// requests holds the pending pods, the most urgent first.
	requests []podRequest
	// usageValidUntil is when the first of the listings that free is based on expires; zero for never.
	// No event announces that other pods have ended.
	usageValidUntil time.Time
	// announced holds, by pod, the announced evictions.
	announced map[types.UID]*eviction.AnnouncedPod
	// holder returns a pod that holds an instance, and false if it is gone.
	holder func(types.UID) (preemption.Pod, bool)
	// previousState is the nextState of the last decision.
	previousState planState
}

// planState is the state that no object holds. Losing it only delays decisions.
type planState struct {
	// offers holds, by pod, the idle instances that were available to it.
	offers map[types.UID]podOffers
	// nominations holds, by pod, the node that its scheduler chose, and since when the planner
	// observes it.
	nominations map[types.UID]nomination
	// made holds the instances that were created for requests and that no pod has used yet.
	made map[place]madeInstance
	// nominated holds, by pod, when the planner last wrote its nominated node.
	nominated map[types.UID]time.Time
	// givenUp holds, by pod, the pause after a place for it was given up.
	givenUp map[types.UID]backoff
	// earmarks holds, by pool, the GPU that is kept for a request that finds no room.
	earmarks map[string]earmark
	// holds stay with a GPU that is no longer earmarked: else two GPUs in turn would close their nodes without end.
	holds map[v1alpha1.GPUUUID]gpuHolds
	// nodeBackoff holds the backoff of changed nodes.
	nodeBackoff map[string]backoff
	// unknownHoldersUntil holds, for nodes whose pods hold whole GPUs that the agent does not
	// report, how long the planner assumes so.
	unknownHoldersUntil map[string]time.Time
	// pausedSince is since when the clients of nodes are being paused.
	pausedSince map[string]time.Time
	// gpuBackoff holds the backoff of GPUs whose layout could not be applied.
	gpuBackoff map[v1alpha1.GPUUUID]backoff
}

// backoff ends at until; failures counts the failures that led to it, and reason describes the
// last one.
type backoff struct {
	until    time.Time
	failures int
	reason   string
}

// next returns the backoff after another failure. It starts at first and doubles up to longest.
func (b backoff) next(now time.Time, first, longest time.Duration) backoff {
	length := first << min(b.failures, 10)
	return backoff{until: now.Add(min(length, longest)), failures: b.failures + 1}
}

// pool is a node pool with sharing: MIG.
type pool struct {
	name   string
	resets v1alpha1.MIGResets
	// layout is nil if the pool is planned from demand.
	layout []v1alpha1.MIGLayout
	// maxChangesPerHour limits the changes of each node within an hour.
	maxChangesPerHour int
	// pause reports whether NVIDIA's GPU clients are paused for changes of a MIG mode.
	pause bool
	// minimumRuntime is the time that its pods run at least before they are preempted.
	minimumRuntime time.Duration
}

func (p *pool) isStatic() bool { return p.layout != nil }

// mayReset reports whether the pool allows resets that change the MIG mode.
func (p *pool) mayReset() bool {
	return p.resets == v1alpha1.MIGResetsWhenIdle || p.resets == v1alpha1.MIGResetsDrain
}

// node is a node of a pool.
type node struct {
	name string
	// pool is the index of its pool.
	pool int
	// taint is nil if the node is not being repartitioned.
	taint *taint
	// unsuitableReason says why the node's labels rule out repartitioning; empty if they do not.
	unsuitableReason string
	// clients holds the node's labels of NVIDIA's GPU clients.
	clients       clientLabels
	clientsPaused bool // by Sluice
	// allocatable counts the node's allocatable GPUs and MIG instances.
	allocatable deviceCounts
	// free holds the node's other resources that are free. Where the node's pods were not listed
	// within the last minutes it holds all that are allocatable.
	free amounts
	// observed holds the agent's report and the spec; nil without a GPUNode.
	observed *observedNode
	// reservation is the place that is kept for a pod to which others give way; nil for none.
	reservation *preemption.Reservation
	// boundPods holds the node's pods as read from the API server, and those in their binding cycle,
	// if podsListed.
	boundPods  []boundPod
	podsListed bool
}

// taint is the planner's taint on a node.
type taint struct {
	// since is when it was added; zero if unknown.
	since time.Time
	// generation is the generation of the GPUNode at that time; -1 if unknown.
	generation int64
}

// boundPod is a non-terminal pod that is bound to a node, or in its binding cycle.
type boundPod struct {
	uid  types.UID
	name string // namespace/name
	// bound is zero while the pod is nominated.
	bound time.Time
	// nominated reports whether the pod is in its binding cycle: its scheduler chose the node and
	// waits for volumes or for the pod's group.
	nominated bool
	// started reports whether the kubelet has accepted the pod, which then has its devices.
	started bool
	// client reports whether the pod belongs to a DaemonSet of NVIDIA's GPU clients.
	client    bool
	resources amounts
	// instanceRequests holds the requested MIG instances, wholeGPUs counts the whole GPUs.
	instanceRequests []instanceRequest
	wholeGPUs        int
}

// instanceRequest requests count instances of a profile.
type instanceRequest struct {
	profile v1alpha1.MIGProfile
	count   int
}

// usesGPU reports whether the pod requests GPUs or MIG instances.
func (p *boundPod) usesGPU() bool { return p.wholeGPUs > 0 || len(p.instanceRequests) > 0 }

// podRequest is a pending pod that requests MIG instances.
type podRequest struct {
	uid              types.UID
	namespace, name  string
	instanceRequests []instanceRequest
	// resources holds its other requests.
	resources amounts
	priority  int32
	created   time.Time
	// guaranteed reports whether other pods may be preempted for it.
	guaranteed bool
	// unschedulableSince is since when its scheduler has found no node; zero if it has not reported so.
	unschedulableSince time.Time
	// nominated is the name of the node that its scheduler chose; empty for none.
	nominated string
	// poolOrder holds the indices of the pools it may use, preferred ones first.
	poolOrder []int
	// feasible reports for each node whether the pod may run there.
	feasible []bool
}
