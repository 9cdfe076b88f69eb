// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Use is input.use: what the project uses, from its status in the webhook's cache. It is some seconds old, and for
// messages only: what must hold is counted by the quota.
type Use struct {
	// Allocated are the GPUs of the project's pods on nodes, in all node pools, such as 0.5.
	Allocated workload.Milli `json:"allocated"`
	// Pending are the GPUs of its waiting pods.
	Pending workload.Milli `json:"pending"`
	// NodePools has the same for each node pool, in the project's order.
	NodePools []PoolUse `json:"nodePools"`
}

// PoolUse is what the project uses of one node pool.
type PoolUse struct {
	// Name is the NodePool's name.
	Name string `json:"name"`
	// Allocated and Pending are as for the project.
	Allocated workload.Milli `json:"allocated"`
	Pending   workload.Milli `json:"pending"`
	// Guaranteed and Limit are the quota that is in force.
	Guaranteed workload.Milli `json:"guaranteed"`
	Limit      workload.Milli `json:"limit"`
}

// NewUse returns input.use of a project.
func NewUse(project *v1alpha1.Project) Use {
	status := &project.Status
	use := Use{
		Allocated: toMilli(status.GPU.Allocated), Pending: toMilli(status.GPU.Pending),
		NodePools: make([]PoolUse, 0, len(status.NodePools)),
	}
	for _, pool := range status.NodePools {
		use.NodePools = append(use.NodePools, PoolUse{
			Name: pool.Name, Allocated: toMilli(pool.Allocated), Pending: toMilli(pool.Pending),
			Guaranteed: toMilli(pool.Guaranteed), Limit: toMilli(pool.Limit),
		})
	}
	return use
}
