// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"sluice.dev/api/v1alpha1"
)

// allowing tells of each node whether a pod may be there, were it not being changed.
func (s *seen) allowing(ctx context.Context, p *placement) []bool {
	required := nodeaffinity.NewRequiredNodeAffinity(p.selector, p.affinity)
	where := make([]bool, len(s.nodes))
	for i := range s.nodes {
		object := s.nodeObjects[s.nodes[i].name]
		fits, err := required.Match(object)
		where[i] = fits && err == nil && !object.Spec.Unschedulable && tolerated(ctx, p.tolerations, object.Spec.Taints)
	}
	return where
}

// tolerated tells whether taints keep a pod out that was not there before.
func tolerated(ctx context.Context, tolerations []corev1.Toleration, taints []corev1.Taint) bool {
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

// orderOf are the pools in which a pod has a place: those it likes in its order, then
// the others by name.
func (s *seen) orderOf(likes []string, where []bool) []int {
	has := make([]bool, len(s.pools))
	for i := range s.nodes {
		has[s.nodes[i].pool] = has[s.nodes[i].pool] || where[i]
	}
	var order []int
	for i := range s.pools {
		if has[i] {
			order = append(order, i)
		}
	}
	rank := func(i int) int {
		if at := slices.Index(likes, s.pools[i].name); at >= 0 {
			return at
		}
		return len(likes)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c := rank(a) - rank(b); c != 0 {
			return c
		}
		return strings.Compare(s.pools[a].name, s.pools[b].name)
	})
	return order
}
