// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// Observation is what there is to say of one pool.
type Observation struct {
	// Nodes is the number of nodes that belong to the pool.
	Nodes int32
	// Machine is their GPUs taken together.
	Machine inventory.Machine
	// Contested are the nodes that other pools select too, each with those
	// pools' names; sorted.
	Contested []string
	// Unusable says of each node whose GPUs cannot be told, or not all of it, why
	// not; sorted.
	Unusable []string
}

// Observe looks at all nodes for one pool. The GPUNodes are by node name.
func Observe(pool *v1alpha1.NodePool, pools []v1alpha1.NodePool, nodes []corev1.Node, observed map[string]*v1alpha1.GPUNode) Observation {
	var seen Observation
	var machines []inventory.Machine
	for i := range nodes {
		node := &nodes[i]
		if !inventory.Selects(pool, node) {
			continue
		}
		if names := inventory.PoolsOf(node, pools); len(names) > 1 {
			others := slices.DeleteFunc(names, func(name string) bool { return name == pool.Name })
			seen.Contested = append(seen.Contested, fmt.Sprintf("%s (also in %s)", node.Name, strings.Join(others, ", ")))
			continue
		}
		seen.Nodes++
		machine, err := inventory.Describe(node, observed[node.Name])
		if err != nil {
			seen.Unusable = append(seen.Unusable, err.Error())
			continue
		}
		machines = append(machines, machine)
	}
	seen.Machine = inventory.Combine(machines)
	offered(pool, seen.Machine.Boards)
	seen.Unusable = append(seen.Unusable, seen.Machine.Remarks...)
	slices.Sort(seen.Contested)
	slices.Sort(seen.Unusable)
	return seen
}

// offered leaves a board the profiles that there will be instances of: a pool that is
// cut as its layout says never has others, and a pod that was given one would wait for
// ever.
func offered(pool *v1alpha1.NodePool, boards []v1alpha1.Board) {
	if pool.Spec.MIG == nil || pool.Spec.MIG.Planning != v1alpha1.MIGPlanningStatic {
		return
	}
	for i := range boards {
		boards[i].MIGProfiles = slices.DeleteFunc(slices.Clone(boards[i].MIGProfiles), func(profile v1alpha1.MIGProfile) bool {
			return !slices.ContainsFunc(pool.Spec.MIG.Layout, func(layout v1alpha1.MIGLayout) bool {
				return layout.MIGDevices[profile] > 0
			})
		})
	}
}
