// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
	"sluice.dev/policies/facts"
)

// Use is the project's quota and use in GPUs, over all pools and for each. The
// quota is what the spec says; the use is what the quotas count. A pool is in
// the list once its quota is counted, and where it shares its currency with no
// other of the project's pools: what is counted together cannot be told apart.
// What strays hold of it is told beside.
//
// What is pending is not known here and stays as it was.
func Use(project *v1alpha1.Project, pools []facts.Pool, quotas []corev1.ResourceQuota, strays []Stray) (v1alpha1.GPUUse, []v1alpha1.PoolUse) {
	all := v1alpha1.GPUUse{Pending: project.Status.GPU.Pending}
	for _, quota := range project.Spec.NodePools {
		all.Guaranteed.Add(quota.GPU.Guaranteed)
		all.Limit.Add(quota.GPU.Limit)
	}
	sharers := map[corev1.ResourceName]int{}
	for i := range pools {
		sharers[pools[i].Currency]++
	}
	for currency := range sharers {
		_, used, _ := render.Limit(quotas, currency)
		all.Allocated.Add(gpus(used))
	}
	all.Guaranteed, all.Limit, all.Allocated = plain(all.Guaranteed), plain(all.Limit), plain(all.Allocated)

	uncounted := held(strays)
	var each []v1alpha1.PoolUse
	for i := range pools {
		pool := &pools[i]
		_, used, counted := render.Limit(quotas, pool.Currency)
		if !counted || sharers[pool.Currency] > 1 {
			continue
		}
		each = append(each, v1alpha1.PoolUse{
			Name: pool.Name,
			GPUUse: v1alpha1.GPUUse{
				Guaranteed: gpus(int64(pool.Guaranteed)), Limit: gpus(int64(pool.Limit)), Allocated: gpus(used),
				Pending: pendingIn(project, pool.Name),
			},
			Uncounted: gpus(int64(uncounted[pool.Name])),
		})
	}
	return all, each
}

func pendingIn(project *v1alpha1.Project, pool string) resource.Quantity {
	for i := range project.Status.NodePools {
		if use := &project.Status.NodePools[i]; use.Name == pool {
			return use.Pending
		}
	}
	return resource.Quantity{}
}

// gpus is a number of thousandths as people write GPUs: 500m, 1, 1500m.
func gpus(milli int64) resource.Quantity {
	return *resource.NewMilliQuantity(milli, resource.DecimalSI)
}

// plain is the same quantity, written as the others are.
func plain(q resource.Quantity) resource.Quantity { return gpus(q.MilliValue()) }
