// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
	"sluice.dev/policies/facts"
)

// Use is the project's quota in GPUs, over all pools and for each, as the spec says
// it. A pool is in the list once its quota is counted. What strays hold of it is
// told beside. What is allocated and pending is not known here and stays as it was.
func Use(project *v1alpha1.Project, pools []facts.Pool, quotas []corev1.ResourceQuota, strays []Stray) (v1alpha1.GPUUse, []v1alpha1.PoolUse) {
	was := &project.Status
	all := v1alpha1.GPUUse{Allocated: was.GPU.Allocated, Pending: was.GPU.Pending}
	for _, quota := range project.Spec.NodePools {
		all.Guaranteed.Add(quota.GPU.Guaranteed)
		all.Limit.Add(quota.GPU.Most())
	}
	all.Guaranteed, all.Limit = plain(all.Guaranteed), plain(all.Limit)

	uncounted := held(strays)
	var each []v1alpha1.PoolUse
	for i := range pools {
		pool := &pools[i]
		if _, _, counted := render.Limit(quotas, pool.Currency); !counted {
			continue
		}
		use := v1alpha1.PoolUse{Name: pool.Name}
		if at := slices.IndexFunc(was.NodePools, func(use v1alpha1.PoolUse) bool { return use.Name == pool.Name }); at >= 0 {
			use.Allocated, use.Pending = was.NodePools[at].Allocated, was.NodePools[at].Pending
		}
		use.Guaranteed, use.Limit = gpus(int64(pool.Guaranteed)), gpus(int64(pool.Limit))
		use.Uncounted = gpus(int64(uncounted[pool.Name]))
		each = append(each, use)
	}
	v1alpha1.Reckon(&all, each)
	return all, each
}

// gpus is a number of thousandths as people write GPUs: 500m, 1, 1500m.
func gpus(milli int64) resource.Quantity {
	return *resource.NewMilliQuantity(milli, resource.DecimalSI)
}

// plain is the same quantity, written as the others are.
func plain(q resource.Quantity) resource.Quantity { return gpus(q.MilliValue()) }
