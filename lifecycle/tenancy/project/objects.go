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

// applyObjects applies what policies render for the project and those of its node pools
// that exist. A namespace that is not governed gets nothing until there is room for the
// GPU pods in it. A fresh namespace, created just now, has none.
func (r *Reconciler) applyObjects(
	ctx context.Context, project *v1alpha1.Project, department *v1alpha1.Department, governed, fresh bool,
) (Outcome, error) {
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
	if _, outcome.OtherQuotas, err = apply.ListQuotas(ctx, r.Client, apply.ProjectTarget(project)); err != nil {
		return Outcome{}, err
	}
	if !governed {
		if outcome.DepartmentExcess, err = r.checkDepartmentLimit(ctx, project, department); outcome.DepartmentExcess != nil || err != nil {
			return outcome, err
		}
	}
	if !fresh {
		var held []UncountedPod
		if held, outcome.OccupiedSettling, err = r.observeOccupied(ctx, project, outcome.Pools); err != nil {
			return Outcome{}, err
		}
		if outcome.Uncounted, outcome.UncountedObserved, err = r.observeUncounted(ctx, project, outcome.Pools, governed); err != nil {
			return Outcome{}, err
		}
		outcome.Uncounted, outcome.UncountedObserved = append(outcome.Uncounted, held...), outcome.UncountedObserved || len(held) > 0
	}
	if outcome.ExceedsLimit = !governed && exceededLimits(outcome.Pools, outcome.Uncounted) != nil; outcome.ExceedsLimit {
		return outcome, nil
	}
	subject := apply.ProjectSubject(project, department, DeductUncounted(outcome.Pools, outcome.Uncounted))
	desired, err := apply.Render(ctx, r.Policies, subject)
	if err != nil {
		return Outcome{}, err
	}
	target := subject.Target()
	target.NewNamespace = fresh
	applied, err := r.applier().Apply(ctx, target, desired)
	if err != nil {
		return Outcome{}, err
	}
	outcome.Quota, outcome.Queues, outcome.Failures = applied.Quota, applied.Queues, applied.Failures
	return outcome, nil
}

// getNodePools returns the project's node pools that exist, by name.
func (r *Reconciler) getNodePools(ctx context.Context, project *v1alpha1.Project) (map[string]*v1alpha1.NodePool, error) {
	pools := make(map[string]*v1alpha1.NodePool, len(project.Spec.NodePools))
	for _, quota := range project.Spec.NodePools {
		var pool v1alpha1.NodePool
		err := r.Client.Get(ctx, types.NamespacedName{Name: quota.Name}, &pool)
		switch {
		case err == nil:
			pools[quota.Name] = &pool
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read node pool %s: %w", quota.Name, err)
		}
	}
	return pools, nil
}

// ComputeCharge returns the quota that a pod with this request needs in the pool. A
// request that cannot be parsed or priced counts as whole GPUs.
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

// migCharge returns the highest charge of the profile on the pool's GPU models, as
// admission does.
func migCharge(request workload.Request, pool *input.NodePool) workload.Milli {
	var charge workload.Milli
	for _, model := range pool.Products {
		for _, profile := range model.Profiles {
			if profile.Name == request.MIGProfile {
				charge = max(charge, profile.QuotaCharge)
			}
		}
	}
	return defaultToWholeGPU(charge)
}

// memoryCharge returns the part of the GPU model with the least memory, rounded up.
func memoryCharge(memoryMiB int64, pool *input.NodePool) workload.Milli {
	var charge workload.Milli
	for _, model := range pool.Products {
		if model.MemoryMiB > 0 {
			charge = max(charge, workload.Milli((memoryMiB*1000+model.MemoryMiB-1)/model.MemoryMiB))
		}
	}
	return min(defaultToWholeGPU(charge), 1000)
}

// replicaCharge returns a GPU divided by its number of replicas.
func replicaCharge(request workload.Request, pool *input.NodePool) workload.Milli {
	var charge workload.Milli
	for _, model := range pool.Products {
		if model.Replicas > 1 && request.Resources.Get(model.ReplicaResource) > 0 {
			charge = max(charge, workload.Milli(1000/model.Replicas))
		}
	}
	return defaultToWholeGPU(charge)
}

func defaultToWholeGPU(charge workload.Milli) workload.Milli {
	if charge == 0 {
		return 1000
	}
	return charge
}

// requestedQuota returns what the pod requests of the pool's quota resource, which its
// quota counts.
func requestedQuota(pod *corev1.Pod, name corev1.ResourceName) workload.Milli {
	var sum int64
	for i := range pod.Spec.Containers {
		// The webhook sets it on exactly one regular container.
		amount := pod.Spec.Containers[i].Resources.Requests[name]
		sum += amount.Value()
	}
	return workload.Milli(sum)
}
