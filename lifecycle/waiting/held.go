// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/gpupods"
	"sluice.dev/lifecycle/render"
)

// charges are what pods are charged, by node pool.
type charges map[string]workload.Milli

func (c charges) sum() (all workload.Milli) {
	for _, milli := range c {
		all += milli
	}
	return all
}

// Charged is what a project's pods are charged, by node pool.
type Charged struct {
	// In is that of the pods that were let in, Queued that of those that Kueue holds
	// back. A quota counts both.
	In, Queued charges
	// Waiting is that of the pods that wait, in a queue or for a node.
	Waiting charges
}

// Charge is what the project's pods among these are charged.
func Charge(pods iter.Seq[*gpupods.Pod], project string) Charged {
	c := Charged{In: charges{}, Queued: charges{}, Waiting: charges{}}
	for pod := range pods {
		if pod.Project != project {
			continue
		}
		by := c.In
		if pod.Queued {
			by = c.Queued
		}
		by[pod.Pool] += pod.Milli
		if pod.Node == "" && !pod.Deleting {
			c.Waiting[pod.Pool] += pod.Milli
		}
	}
	return c
}

// allocated is what is let in of all pools, and in each. Where a pool has its
// currency to itself the quota tells, which counts exactly; where several share one
// it tells their sum, and the pods whose it is.
func (c Charged) allocated(project *v1alpha1.Project, quotas []corev1.ResourceQuota) (all workload.Milli, in charges) {
	in = charges{}
	var queued workload.Milli
	for _, pool := range project.Spec.NodePools {
		_, used, alone := render.Limit(quotas, v1alpha1.GPUMilliFor(pool.Name))
		if !alone {
			in[pool.Name] = c.In[pool.Name]
			queued += c.Queued[pool.Name]
			continue
		}
		in[pool.Name] = max(0, workload.Milli(used)-c.Queued[pool.Name])
		all += in[pool.Name]
	}
	_, shared, _ := render.Limit(quotas, v1alpha1.ResourceGPUMilli)
	return all + max(0, workload.Milli(shared)-queued), in
}
