// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package quotas

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/promises"
	"sluice.dev/api/v1alpha1"
)

// Capacity warns where a department asks for a guarantee that, with those of the
// others, is more than the node pool has. Nodes come and go, so that is allowed; a
// pool of which nobody knows a GPU yet is not spoken of. Before is nil where the
// department is new.
func Capacity(path *field.Path, before, department *v1alpha1.Department, departments []v1alpha1.Department, pools []v1alpha1.NodePool) []string {
	var warnings []string
	for i := range department.Spec.NodePools {
		quota := &department.Spec.NodePools[i]
		if before != nil {
			if _, had := find(before.Spec.NodePools, quota.Name); had != nil && quota.GPU.Guaranteed.Cmp(had.Guaranteed) <= 0 {
				continue
			}
		}
		gpus := gpusOf(pools, quota.Name)
		all := quota.GPU.Guaranteed.DeepCopy()
		for j := range departments {
			if departments[j].Name == department.Name {
				continue
			}
			if _, other := find(departments[j].Spec.NodePools, quota.Name); other != nil {
				all.Add(other.Guaranteed)
			}
		}
		if gpus > 0 && all.Cmp(*resource.NewQuantity(gpus, resource.DecimalSI)) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: node pool %s has %d GPUs, and %s are now guaranteed to departments: not all can have their guarantee at once",
				path.Index(i).Child("gpu", "guaranteed"), quota.Name, gpus, promises.GPUsOf(quota.Name).Amount(all)))
		}
	}
	return warnings
}

func gpusOf(pools []v1alpha1.NodePool, name string) int64 {
	for i := range pools {
		if pools[i].Name == name {
			return int64(pools[i].Status.GPUs)
		}
	}
	return 0
}
