// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit"
)

// claimFormer returns the clock under which the workload's pods ran before they were released or
// adopted, or nil. A workload that a controller of Kubernetes created continues it as that of its
// creator, whose program they run; another user's workload does not.
func (r *Reconciler) claimFormer(ctx context.Context, w *workload, n *timelimit.Successor) (*v1alpha1.WorkloadClock, error) {
	name, known := r.Workloads.formerClock(w.roots[0])
	if !known || !w.hasPods {
		return nil, nil
	}
	var former v1alpha1.WorkloadClock
	if err := r.Client.Get(ctx, name, &former); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if n.Own != nil {
		if !timelimit.RanLonger(&former.Status, n.Own, w.now) { // it passed its time on
			r.Workloads.forgetFormerClock(w.roots[0])
			return nil, nil
		}
		if _, pods := r.Workloads.RootsAndPods(name); slices.ContainsFunc(pods, isActivePod) {
			return nil, nil
		}
	}
	switch {
	case strings.HasPrefix(n.Creator, "system:"):
		n.Creator, n.TemplateHash = former.Status.CreatedBy, former.Status.TemplateHash
	case !former.CountsFor(n.Creator):
		return nil, nil
	}
	return r.recordSuccessor(ctx, &former, w.clock.Name)
}

// continueFormer continues the clock under which the workload's pods ran before, if the workload has a
// clock with less time: a ReplicaSet can be released and adopted several times.
func (r *Reconciler) continueFormer(ctx context.Context, w *workload, creator string) error {
	s := &w.clock.Status
	if s.HasActiveStop(w.now) {
		return nil
	}
	from, err := r.claimFormer(ctx, w, &timelimit.Successor{Clock: w.clock.Name, Creator: creator, Own: s})
	if from != nil {
		w.clock = w.clock.DeepCopy()
		w.clock.Status = timelimit.ContinueStatus(s, from, w.now)
	}
	return err
}
