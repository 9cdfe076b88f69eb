// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// observedState holds a snapshot and the objects that it was made from.
type observedState struct {
	snapshot
	nodePools   []*v1alpha1.NodePool
	nodeObjects map[string]*corev1.Node
	gpuNodes    map[string]*v1alpha1.GPUNode
	// orphanedNodes holds the tainted nodes without a pool with MIG, and those with paused clients.
	orphanedNodes []*corev1.Node
	// formerlyPlannedPools holds the pools without MIG that still have the condition Planned.
	formerlyPlannedPools []*v1alpha1.NodePool
}

// observe reads the input of a decision.
func (r *Reconciler) observe(ctx context.Context, now time.Time) (*observedState, error) {
	var pools v1alpha1.NodePoolList
	var nodes corev1.NodeList
	var gpuNodes v1alpha1.GPUNodeList
	for what, into := range map[string]client.ObjectList{"node pools": &pools, "nodes": &nodes, "GPU nodes": &gpuNodes} {
		// There are thousands of objects; they are only read, so the cache's own ones serve.
		if err := r.Client.List(ctx, into, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %s: %w", what, err)
		}
	}
	s := &observedState{nodeObjects: map[string]*corev1.Node{}, gpuNodes: map[string]*v1alpha1.GPUNode{}}
	s.previousState = r.state
	s.holder, s.announced = r.newHolderFunc(s.gpuNodes), map[types.UID]*eviction.AnnouncedPod{}
	if r.Evictions != nil {
		for _, p := range r.Announced.Values() {
			s.announced[p.UID] = p
		}
	}
	byName := map[string]int{}
	for i := range pools.Items {
		if p := &pools.Items[i]; p.Spec.Sharing == v1alpha1.SharingMIG && p.DeletionTimestamp == nil {
			byName[p.Name] = len(s.pools)
			s.pools, s.nodePools = append(s.pools, newPool(p)), append(s.nodePools, p)
		} else if hasPlannedCondition(p) {
			s.formerlyPlannedPools = append(s.formerlyPlannedPools, p)
		}
	}
	for i := range gpuNodes.Items {
		s.gpuNodes[gpuNodes.Items[i].Name] = &gpuNodes.Items[i]
	}
	r.observedNodes.prune(s.gpuNodes)
	for i := range nodes.Items {
		object := r.labelsBeforePause.restore(&nodes.Items[i])
		names := inventory.PoolsForNode(object, pools.Items)
		at, planned := 0, false
		if len(names) == 1 {
			at, planned = byName[names[0]]
		}
		if !planned {
			if repartitioningTaint(object) != nil || clientsOf(object).paused() {
				s.orphanedNodes = append(s.orphanedNodes, object)
			}
			continue
		}
		s.nodeObjects[object.Name] = object
		clients := clientsOf(object)
		n := node{
			name: object.Name, pool: at, taint: repartitioningTaint(object), clients: clients, clientsPaused: clients.paused(),
			allocatable: allocatableDevices(object), unsuitableReason: unsuitableReason(object),
			free: newAmounts(object.Status.Allocatable),
		}
		if gpuNode := s.gpuNodes[object.Name]; gpuNode != nil && gpuNode.DeletionTimestamp == nil {
			n.observed = r.observedNodes.observe(gpuNode)
			n.reservation = r.reservationOf(object.Name, gpuNode, now)
		}
		s.nodes = append(s.nodes, n)
	}
	slices.SortFunc(s.nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	r.usage.prune(s.nodeObjects)
	maps.DeleteFunc(r.labelsBeforePause, func(name string, _ map[string]string) bool { return s.nodeObjects[name] == nil })
	if err := r.listClaims(ctx, s, now); err != nil {
		return nil, err
	}
	for i := range s.nodes {
		if n := &s.nodes[i]; !n.podsListed {
			if until := r.usage.apply(n, now); s.usageValidUntil.IsZero() || !until.IsZero() && until.Before(s.usageValidUntil) {
				s.usageValidUntil = until
			}
		}
	}
	return s, r.collectRequests(ctx, s)
}

func newPool(p *v1alpha1.NodePool) pool {
	of := pool{name: p.Name, maxChangesPerHour: defaultMaxChangesPerHour, minimumRuntime: p.Spec.MinimumRuntime()}
	if p.Spec.MIG != nil {
		if p.Spec.MIG.MaxChangesPerHour != nil {
			of.maxChangesPerHour = int(*p.Spec.MIG.MaxChangesPerHour)
		}
		of.resets, of.pause = p.Spec.MIG.Resets, p.Spec.MIG.Pause
		if p.Spec.MIG.Planning == v1alpha1.MIGPlanningStatic {
			of.layout = append([]v1alpha1.MIGLayout{}, p.Spec.MIG.Layout...)
		}
	}
	return of
}

// collectRequests collects the requests of pending pods, with the nodes feasible for each.
func (r *Reconciler) collectRequests(ctx context.Context, s *observedState) error {
	feasibleByConstraints := map[string][]bool{}
	for _, w := range r.pendingPods.Values() {
		held, err := r.isHeldByQueue(ctx, w)
		if err != nil {
			return err
		}
		if held {
			continue
		}
		raw, err := json.Marshal([]any{w.constraints.selector, w.constraints.affinity, w.constraints.tolerations})
		if err != nil {
			return fmt.Errorf("marshal constraints of pod %s: %w", w.displayName(), err)
		}
		feasible, known := feasibleByConstraints[string(raw)]
		if !known {
			feasible = s.feasibleNodes(ctx, &w.constraints)
			feasibleByConstraints[string(raw)] = feasible
		}
		request := w.podRequest
		request.feasible, request.nominated = feasible, w.nominatedNode
		request.guaranteed = w.guaranteed && r.Evictions != nil
		if request.poolOrder = s.orderPools(w.preferredPools, feasible); len(request.poolOrder) > 0 {
			s.requests = append(s.requests, request)
		}
	}
	slices.SortFunc(s.requests, func(a, b podRequest) int { return compareUrgency(&a, &b) })
	return nil
}

func hasPlannedCondition(p *v1alpha1.NodePool) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionPlanned })
}

// feasibleNodes reports for each node whether a pod may run there, apart from the planner's taint.
func (s *observedState) feasibleNodes(ctx context.Context, p *podConstraints) []bool {
	required := nodeaffinity.NewRequiredNodeAffinity(p.selector, p.affinity)
	feasible := make([]bool, len(s.nodes))
	for i := range s.nodes {
		object := s.nodeObjects[s.nodes[i].name]
		fits, err := required.Match(object)
		feasible[i] = fits && err == nil && !object.Spec.Unschedulable && toleratesTaints(ctx, p.tolerations, object.Spec.Taints)
	}
	return feasible
}

// toleratesTaints reports whether a new pod tolerates the taints, apart from the planner's.
func toleratesTaints(ctx context.Context, tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	for i := range taints {
		taint := &taints[i]
		if taint.Key == v1alpha1.TaintRepartitioning || taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.FromContext(ctx), taint, true)
		}) {
			return false
		}
	}
	return true
}

// orderPools returns the pools with a feasible node: the preferred ones in their order, then
// the others by name.
func (s *observedState) orderPools(preferred []string, feasible []bool) []int {
	hasNode := make([]bool, len(s.pools))
	for i := range s.nodes {
		hasNode[s.nodes[i].pool] = hasNode[s.nodes[i].pool] || feasible[i]
	}
	var order []int
	for i := range s.pools {
		if hasNode[i] {
			order = append(order, i)
		}
	}
	rank := func(i int) int {
		if at := slices.Index(preferred, s.pools[i].name); at >= 0 {
			return at
		}
		return len(preferred)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c := rank(a) - rank(b); c != 0 {
			return c
		}
		return strings.Compare(s.pools[a].name, s.pools[b].name)
	})
	return order
}
