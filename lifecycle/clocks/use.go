// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/ending"
	"sluice.dev/lifecycle/gpupods"
)

// freshFor is how old a node's sample may be, in machine time, to say something of
// the use of its GPUs. Agents write one every minute at least.
const freshFor = 3 * time.Minute

// use is how the GPUs of running pods are used: the latest use of any of them, up
// to the oldest of their nodes' samples. Where one node says nothing, or cannot
// tell, nothing is known.
func (r *Reconciler) use(ctx context.Context, pods []*gpupods.Pod) (ending.Use, error) {
	use := ending.Use{Known: len(pods) > 0}
	for _, pod := range pods {
		var node v1alpha1.GPUNode
		err := r.Client.Get(ctx, types.NamespacedName{Name: pod.Node}, &node)
		if client.IgnoreNotFound(err) != nil {
			return ending.Use{}, err
		}
		// A node that is not there has no sample either.
		active, sampled, known := sampleOf(pod, &node, clock.MachineNow())
		if !known {
			return ending.Use{}, nil
		}
		if at := r.notBefore(active); at.After(use.LastActive) {
			use.LastActive = at
		}
		if at := r.Clock.FromReal(sampled); use.SampledAt.IsZero() || at.Before(use.SampledAt) {
			use.SampledAt = at
		}
	}
	// A node's own clock may be ahead: nothing is idle for longer than until now.
	if now := r.Clock.Now(); use.SampledAt.After(now) {
		use.SampledAt = now
	}
	if use.LastActive.After(use.SampledAt) {
		use.LastActive = use.SampledAt
	}
	return use, nil
}

// sampleOf is what a node's latest sample says of a pod, in machine time. A pod
// that has not computed since it began was last active when it began.
func sampleOf(pod *gpupods.Pod, node *v1alpha1.GPUNode, now time.Time) (active, sampled time.Time, known bool) {
	s := &node.Status
	if s.SampledAt == nil || now.Sub(s.SampledAt.Time).Abs() > freshFor || s.UtilisationSource == v1alpha1.UtilisationUnavailable || s.UtilisationSource == "" {
		return time.Time{}, time.Time{}, false
	}
	for i := range s.Pods {
		if s.Pods[i].UID != pod.UID {
			continue
		}
		active = pod.Began()
		if last := s.Pods[i].LastActive; last != nil && last.After(active) {
			active = last.Time
		}
		return active, s.SampledAt.Time, true
	}
	return time.Time{}, time.Time{}, false
}
