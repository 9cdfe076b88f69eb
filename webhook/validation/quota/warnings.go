// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// WarnBelowUsage warns of each quota that is cut below what is in use. Nothing is stopped
// for it.
func WarnBelowUsage(path *field.Path, before, after []v1alpha1.PoolQuota, use []v1alpha1.PoolUsage) []string {
	var warnings []string
	for i := range before {
		name := before[i].Name
		inUse := allocatedGPUs(use, name)
		if inUse.IsZero() {
			continue
		}
		gpus := tenancy.NodePoolGPUs(name)
		at, now := findPool(after, name)
		switch {
		case now == nil:
			warnings = append(warnings, fmt.Sprintf("%s: node pool %s is taken away while it uses %s of it: nothing is stopped for that, but nothing new starts there",
				path, name, gpus.FormatAmount(inUse)))
		case isLowered(before[i].GPU.MaxInUse(), now.MaxInUse()) && inUse.Cmp(now.MaxInUse()) > 0:
			warnings = append(warnings, fmt.Sprintf("%s: it uses %s of node pool %s, %s more than it may from now on: nothing is stopped for that, but no new GPU pods start until enough have ended",
				path.Index(at).Child("gpu"), gpus.FormatAmount(inUse), name, difference(inUse, now.MaxInUse())))
		case isLowered(before[i].GPU.Guaranteed, now.Guaranteed) && inUse.Cmp(now.Guaranteed) > 0:
			warnings = append(warnings, fmt.Sprintf("%s: it uses %s of node pool %s, %s more than is guaranteed from now on: nothing is stopped for that, but what is preemptible may have to make room when others claim their guarantee",
				path.Index(at).Child("gpu", "guaranteed"), gpus.FormatAmount(inUse), name, difference(inUse, now.Guaranteed)))
		}
	}
	return warnings
}

func allocatedGPUs(use []v1alpha1.PoolUsage, pool string) resource.Quantity {
	for i := range use {
		if use[i].Name == pool {
			return use[i].Allocated
		}
	}
	return resource.Quantity{}
}

// findPool is the place and the quota of the pool; nil where it is not listed.
func findPool(quotas []v1alpha1.PoolQuota, pool string) (int, *v1alpha1.GPUQuota) {
	for i := range quotas {
		if quotas[i].Name == pool {
			return i, &quotas[i].GPU
		}
	}
	return -1, nil
}

func isLowered(before, after resource.Quantity) bool { return after.Cmp(before) < 0 }

// difference is how much more the one is than the other, as people write GPUs.
func difference(all, part resource.Quantity) string {
	all.Sub(part)
	return resource.NewMilliQuantity(all.MilliValue(), resource.DecimalSI).String()
}

// WarnAboveCapacity warns where a department asks for a guarantee that, with those of the
// others, is more than the node pool has. Nodes come and go, so that is allowed; a
// pool of which nobody knows a GPU yet is not spoken of. Before is nil where the
// department is new.
func WarnAboveCapacity(path *field.Path, before, department *v1alpha1.Department, departments []v1alpha1.Department, pools []v1alpha1.NodePool) []string {
	var warnings []string
	for i := range department.Spec.NodePools {
		quota := &department.Spec.NodePools[i]
		if before != nil {
			if _, had := findPool(before.Spec.NodePools, quota.Name); had != nil && quota.GPU.Guaranteed.Cmp(had.Guaranteed) <= 0 {
				continue
			}
		}
		gpus := poolGPUs(pools, quota.Name)
		all := quota.GPU.Guaranteed.DeepCopy()
		for j := range departments {
			if departments[j].Name == department.Name {
				continue
			}
			if _, other := findPool(departments[j].Spec.NodePools, quota.Name); other != nil {
				all.Add(other.Guaranteed)
			}
		}
		if gpus > 0 && all.Cmp(*resource.NewQuantity(gpus, resource.DecimalSI)) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: node pool %s has %d GPUs, and %s are now guaranteed to departments: not all can have their guarantee at once",
				path.Index(i).Child("gpu", "guaranteed"), quota.Name, gpus, tenancy.NodePoolGPUs(quota.Name).FormatAmount(all)))
		}
	}
	return warnings
}

func poolGPUs(pools []v1alpha1.NodePool, name string) int64 {
	for i := range pools {
		if pools[i].Name == name {
			return int64(pools[i].Status.GPUs)
		}
	}
	return 0
}
