// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
)

func (r *Reconciler) applier() *apply.Applier {
	return &apply.Applier{Client: r.Client, Live: r.Live, Queues: r.Queues, Cache: &r.cache}
}

// applyObjects makes the namespace have what policies render for the project.
// Node pools that do not exist get nothing; the others do. A namespace that is
// not governed gets nothing until there is room for the GPU pods that are in it. In
// one that is fresh, made just now, there are none.
func (r *Reconciler) applyObjects(ctx context.Context, project *v1alpha1.Project, department *v1alpha1.Department, governed, fresh bool) (Outcome, error) {
	pools, err := r.getNodePools(ctx, project)
	if err != nil {
		return Outcome{}, err
	}
	outcome := Outcome{Pools: input.NewProjectPools(project, func(name string) *v1alpha1.NodePool { return pools[name] })}
	for _, quota := range project.Spec.NodePools {
		if pools[quota.Name] == nil {
			outcome.MissingPools = append(outcome.MissingPools, quota.Name)
		}
	}
	if !fresh {
		if outcome.Uncounted, outcome.UncountedObserved, err = r.observeUncounted(ctx, project, outcome.Pools, governed); err != nil {
			return Outcome{}, err
		}
	}
	if outcome.ExceedsLimit = !governed && exceededLimits(outcome.Pools, outcome.Uncounted) != nil; outcome.ExceedsLimit {
		return outcome, nil
	}
	subject := apply.ProjectSubject(project, department, DeductUncounted(outcome.Pools, outcome.Uncounted))
	wanted, err := apply.Render(ctx, r.Policies, subject)
	if err != nil {
		return Outcome{}, err
	}
	place := subject.Target()
	place.NewNamespace = fresh
	applied, err := r.applier().Apply(ctx, place, wanted)
	if err != nil {
		return Outcome{}, err
	}
	outcome.Quotas, outcome.Queues, outcome.Failures = applied.Quotas, applied.Queues, applied.Failures
	return outcome, nil
}

// getNodePools are those of the project that exist, by name.
func (r *Reconciler) getNodePools(ctx context.Context, project *v1alpha1.Project) (map[string]*v1alpha1.NodePool, error) {
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

// ComputeCharge is what a pod that asks for this would be charged in the pool. What
// cannot be read or priced counts as whole GPUs, which never lets more in than
// there is.
func ComputeCharge(request workload.Request, pool *input.NodePool) workload.Milli {
	devices := workload.Milli(max(1, request.Devices))
	switch request.Form {
	case workload.FormShare:
		return devices * request.Share
	case workload.FormMIG:
		return devices * migCharge(request, pool)
	case workload.FormMemory:
		return devices * memoryCharge(request.MemoryMiB, pool)
	case workload.FormReplica:
		return devices * replicaCharge(request, pool)
	default:
		return max(devices*1000, request.GPUs)
	}
}

// migCharge is the highest among the pool's boards, as the pod's admission
// would have it.
func migCharge(request workload.Request, pool *input.NodePool) workload.Milli {
	var price workload.Milli
	for _, board := range pool.Products {
		for _, profile := range board.Profiles {
			if profile.Name == request.MIGProfile {
				price = max(price, profile.QuotaCharge)
			}
		}
	}
	return defaultToWholeGPU(price)
}

// memoryCharge is that part of the smallest board, rounded up.
func memoryCharge(memoryMiB int64, pool *input.NodePool) workload.Milli {
	var price workload.Milli
	for _, board := range pool.Products {
		if board.MemoryMiB > 0 {
			price = max(price, workload.Milli((memoryMiB*1000+board.MemoryMiB-1)/board.MemoryMiB))
		}
	}
	return min(defaultToWholeGPU(price), 1000)
}

// replicaCharge is a GPU divided by how many replicas are made of it.
func replicaCharge(request workload.Request, pool *input.NodePool) workload.Milli {
	var price workload.Milli
	for _, board := range pool.Products {
		if board.Replicas > 1 && request.Resources.Get(board.ReplicaResource) > 0 {
			price = max(price, workload.Milli(1000/board.Replicas))
		}
	}
	return defaultToWholeGPU(price)
}

func defaultToWholeGPU(price workload.Milli) workload.Milli {
	if price == 0 {
		return 1000
	}
	return price
}

// requestedQuota is what the pod already asks for in the pool's currency, which its
// quota counts.
func requestedQuota(pod *corev1.Pod, currency corev1.ResourceName) workload.Milli {
	var sum int64
	for i := range pod.Spec.Containers {
		// The webhook writes it on one regular container and nowhere else.
		amount := pod.Spec.Containers[i].Resources.Requests[currency]
		sum += amount.Value()
	}
	return workload.Milli(sum)
}
