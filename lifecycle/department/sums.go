// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// Sums is what the department may have, over all pools and in each of its own,
// with what its projects have of that and wait for. Where the projects' use is
// not told pool by pool it is in the sum alone.
func Sums(department *v1alpha1.Department, projects []v1alpha1.Project) (v1alpha1.GPUUse, []v1alpha1.PoolUse) {
	var all v1alpha1.GPUUse
	in := map[string]*v1alpha1.PoolUse{}
	each := make([]v1alpha1.PoolUse, len(department.Spec.NodePools))
	for i := range department.Spec.NodePools {
		quota := &department.Spec.NodePools[i]
		each[i] = v1alpha1.PoolUse{Name: quota.Name}
		each[i].Guaranteed, each[i].Limit = quota.GPU.Guaranteed, quota.GPU.Most()
		in[quota.Name] = &each[i]
		all.Guaranteed.Add(quota.GPU.Guaranteed)
		all.Limit.Add(quota.GPU.Most())
	}
	for i := range projects {
		status := &projects[i].Status
		all.Allocated.Add(status.GPU.Allocated)
		all.Pending.Add(status.GPU.Pending)
		for j := range status.NodePools {
			// A pool that was taken from the department may still be in use.
			if use, known := &status.NodePools[j], in[status.NodePools[j].Name]; known != nil {
				known.Allocated.Add(use.Allocated)
				known.Pending.Add(use.Pending)
				known.Uncounted.Add(use.Uncounted)
			}
		}
	}
	tidy(&all)
	v1alpha1.Reckon(&all, each)
	for i := range each {
		tidy(&each[i].GPUUse)
		each[i].Uncounted = plain(each[i].Uncounted)
	}
	return all, each
}

func tidy(use *v1alpha1.GPUUse) {
	use.Guaranteed, use.Limit = plain(use.Guaranteed), plain(use.Limit)
	use.Allocated, use.Pending = plain(use.Allocated), plain(use.Pending)
}

// plain is the quantity as people write GPUs: 500m, 1, 1500m.
func plain(q resource.Quantity) resource.Quantity {
	return *resource.NewMilliQuantity(q.MilliValue(), resource.DecimalSI)
}
