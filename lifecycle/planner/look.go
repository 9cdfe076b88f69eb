// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
)

// seen are the objects that a snapshot was made from.
type seen struct {
	snapshot
	poolObjects []*v1alpha1.NodePool
	nodeObjects map[string]*corev1.Node
	gpuNodes    map[string]*v1alpha1.GPUNode
	// orphans are tainted nodes of no pool that is cut.
	orphans []*corev1.Node
	// others are pools that are not cut, and say that they are planned.
	others []*v1alpha1.NodePool
}

// look reads all that a decision needs.
func (r *Reconciler) look(ctx context.Context, now time.Time) (*seen, error) {
	var pools v1alpha1.NodePoolList
	var nodes corev1.NodeList
	var gpuNodes v1alpha1.GPUNodeList
	for what, into := range map[string]client.ObjectList{"node pools": &pools, "nodes": &nodes, "GPU nodes": &gpuNodes} {
		// The cache's own objects, of which there are thousands; they are only read.
		if err := r.Client.List(ctx, into, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %s: %w", what, err)
		}
	}
	s := &seen{nodeObjects: map[string]*corev1.Node{}, gpuNodes: map[string]*v1alpha1.GPUNode{}}
	s.past = r.memory
	byName := map[string]int{}
	for i := range pools.Items {
		if p := &pools.Items[i]; p.Spec.Sharing == v1alpha1.SharingMIG && p.DeletionTimestamp == nil {
			byName[p.Name] = len(s.pools)
			s.pools, s.poolObjects = append(s.pools, poolOf(p)), append(s.poolObjects, p)
		} else if planned(p) {
			s.others = append(s.others, p)
		}
	}
	for i := range gpuNodes.Items {
		s.gpuNodes[gpuNodes.Items[i].Name] = &gpuNodes.Items[i]
	}
	r.machines.forget(s.gpuNodes)
	for i := range nodes.Items {
		object := &nodes.Items[i]
		names := inventory.PoolsOf(object, pools.Items)
		at, cut := 0, false
		if len(names) == 1 {
			at, cut = byName[names[0]], true
			if _, known := byName[names[0]]; !known {
				cut = false
			}
		}
		if !cut {
			if taintOf(object) != nil {
				s.orphans = append(s.orphans, object)
			}
			continue
		}
		s.nodeObjects[object.Name] = object
		n := node{name: object.Name, pool: at, taint: taintOf(object), published: publishedBy(object), unfit: unfit(object)}
		if gpuNode := s.gpuNodes[object.Name]; gpuNode != nil && gpuNode.DeletionTimestamp == nil {
			n.machine = r.machines.read(gpuNode)
		}
		s.nodes = append(s.nodes, n)
	}
	slices.SortFunc(s.nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	if err := r.count(ctx, s, now); err != nil {
		return nil, err
	}
	return s, r.gather(ctx, s)
}

func poolOf(p *v1alpha1.NodePool) pool {
	of := pool{name: p.Name}
	if p.Spec.MIG != nil {
		of.resets = p.Spec.MIG.Resets
		if p.Spec.MIG.Planning == v1alpha1.MIGPlanningStatic {
			of.layout = append([]v1alpha1.MIGLayout{}, p.Spec.MIG.Layout...)
		}
	}
	return of
}

// count reads the pods of the nodes whose spec may be written, from the API server
// itself: no cache may be behind here.
func (r *Reconciler) count(ctx context.Context, s *seen, now time.Time) error {
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.taint == nil || n.machine == nil || n.taint.generation != n.machine.generation {
			continue
		}
		if _, settled := n.settles(now); !settled {
			continue
		}
		var pods corev1.PodList
		if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": n.name}); err != nil {
			return fmt.Errorf("listing the pods of node %s: %w", n.name, err)
		}
		for k := range pods.Items {
			if pod := &pods.Items[k]; !workload.Ended(pod) {
				n.claims = append(n.claims, claimOf(pod))
			}
		}
		n.known = true
	}
	return nil
}

// gather finds who waits for what, and where each may be.
func (r *Reconciler) gather(ctx context.Context, s *seen) error {
	places := map[string][]bool{}
	for _, w := range r.pending.all() {
		held, err := r.waitsForQueue(ctx, w)
		if err != nil {
			return err
		}
		if held {
			continue
		}
		raw, err := json.Marshal([]any{w.placement.selector, w.placement.affinity, w.placement.tolerations})
		if err != nil {
			return fmt.Errorf("pod %s: %w", w.key(), err)
		}
		where, known := places[string(raw)]
		if !known {
			where = s.allowing(ctx, &w.placement)
			places[string(raw)] = where
		}
		one := w.want
		one.where = where
		if one.order = s.orderOf(w.pools, where); len(one.order) > 0 {
			s.wants = append(s.wants, one)
		}
	}
	slices.SortFunc(s.wants, func(a, b want) int { return urgent(&a, &b) })
	return nil
}

func planned(p *v1alpha1.NodePool) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionPlanned })
}
