// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
	"sluice.dev/policies/facts"
)

func (r *Reconciler) applier() *render.Applier {
	return &render.Applier{Client: r.Client, Live: r.Live, Queues: r.Queues, Memory: &r.applied}
}

// applyObjects makes the namespace have what policies render for the project.
// Node pools that do not exist get nothing; the others do. A namespace that is
// not governed gets nothing until there is room for the GPU pods that are in it. In
// one that is fresh, made just now, there are none.
func (r *Reconciler) applyObjects(ctx context.Context, project *v1alpha1.Project, department *v1alpha1.Department, governed, fresh bool) (Outcome, error) {
	pools, err := r.nodePools(ctx, project)
	if err != nil {
		return Outcome{}, err
	}
	outcome := Outcome{Pools: facts.OfPools(project, func(name string) *v1alpha1.NodePool { return pools[name] })}
	for _, quota := range project.Spec.NodePools {
		if pools[quota.Name] == nil {
			outcome.MissingPools = append(outcome.MissingPools, quota.Name)
		}
	}
	if !fresh {
		if outcome.Strays, outcome.Looked, err = r.strays(ctx, project, outcome.Pools, governed); err != nil {
			return Outcome{}, err
		}
	}
	if outcome.Full = !governed && noRoom(outcome.Pools, outcome.Strays) != nil; outcome.Full {
		return outcome, nil
	}
	subject := render.OfProject(project, department, Less(outcome.Pools, outcome.Strays))
	wanted, err := render.Ask(ctx, r.Policies, subject)
	if err != nil {
		return Outcome{}, err
	}
	place := subject.Place()
	place.Fresh = fresh
	applied, err := r.applier().Apply(ctx, place, wanted)
	if err != nil {
		return Outcome{}, err
	}
	outcome.Quotas, outcome.Queues, outcome.Faults = applied.Quotas, applied.Queues, applied.Faults
	return outcome, nil
}

// nodePools are those of the project that exist, by name.
func (r *Reconciler) nodePools(ctx context.Context, project *v1alpha1.Project) (map[string]*v1alpha1.NodePool, error) {
	pools := make(map[string]*v1alpha1.NodePool, len(project.Spec.NodePools))
	for _, quota := range project.Spec.NodePools {
		var pool v1alpha1.NodePool
		err := r.Client.Get(ctx, types.NamespacedName{Name: quota.Name}, &pool)
		switch {
		case err == nil:
			pools[quota.Name] = &pool
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading node pool %s: %w", quota.Name, err)
		}
	}
	return pools, nil
}
