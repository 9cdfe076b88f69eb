// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// WarnBelowUsage warns of each quota that is lowered below the current use. Running pods continue.
func WarnBelowUsage(path *field.Path, before, after []v1alpha1.PoolQuota, usage []v1alpha1.PoolUsage) []string {
	var warnings []string
	for i := range before {
		name := before[i].Name
		inUse := allocatedGPUs(usage, name)
		if inUse.IsZero() {
			continue
		}
		gpus := tenancy.NodePoolGPUs(name)
		index, quota := findPool(after, name)
		switch {
		case quota == nil:
			warnings = append(warnings, fmt.Sprintf(
				"%s: node pool %s is removed while it uses %s of it: running pods continue, but no new pods start there",
				path, name, gpus.FormatAmount(inUse)))
		case isLowered(before[i].GPU.MaxInUse(), quota.MaxInUse()) && inUse.Cmp(quota.MaxInUse()) > 0:
			warnings = append(warnings, fmt.Sprintf(
				"%s: it uses %s of node pool %s, %s more than the new limit: running pods continue, but no new GPU pods start until enough have ended",
				path.Index(index).Child("gpu"), gpus.FormatAmount(inUse), name, difference(inUse, quota.MaxInUse())))
		case isLowered(before[i].GPU.Guaranteed, quota.Guaranteed) && inUse.Cmp(quota.Guaranteed) > 0:
			warnings = append(warnings, fmt.Sprintf(
				"%s: it uses %s of node pool %s, %s more than the new guarantee: "+
					"running pods continue, but preemptible ones can be preempted when others claim their guarantee",
				path.Index(index).Child("gpu", "guaranteed"), gpus.FormatAmount(inUse), name, difference(inUse, quota.Guaranteed)))
		}
	}
	return warnings
}

func allocatedGPUs(usage []v1alpha1.PoolUsage, pool string) resource.Quantity {
	for i := range usage {
		if usage[i].Name == pool {
			return usage[i].Allocated
		}
	}
	return resource.Quantity{}
}

// findPool returns the index and the quota of a pool; nil if it is not listed.
func findPool(quotas []v1alpha1.PoolQuota, pool string) (int, *v1alpha1.GPUQuota) {
	for i := range quotas {
		if quotas[i].Name == pool {
			return i, &quotas[i].GPU
		}
	}
	return -1, nil
}

func isLowered(before, after resource.Quantity) bool { return after.Cmp(before) < 0 }

// difference returns a minus b in the usual notation of GPUs.
func difference(a, b resource.Quantity) string {
	a.Sub(b)
	return resource.NewMilliQuantity(a.MilliValue(), resource.DecimalSI).String()
}

// WarnAboveCapacity warns if the departments' guarantees exceed the GPUs of a node pool. That is valid, since nodes
// come and go. A pool without known GPUs causes no warning. before is nil for a new department.
func WarnAboveCapacity(
	path *field.Path, before, department *v1alpha1.Department, departments []v1alpha1.Department, pools []v1alpha1.NodePool,
) []string {
	var warnings []string
	for i := range department.Spec.NodePools {
		quota := &department.Spec.NodePools[i]
		if before != nil {
			if _, old := findPool(before.Spec.NodePools, quota.Name); old != nil && quota.GPU.Guaranteed.Cmp(old.Guaranteed) <= 0 {
				continue
			}
		}
		gpus := poolGPUs(pools, quota.Name)
		total := quota.GPU.Guaranteed.DeepCopy()
		for j := range departments {
			if departments[j].Name == department.Name {
				continue
			}
			if _, other := findPool(departments[j].Spec.NodePools, quota.Name); other != nil {
				total.Add(other.Guaranteed)
			}
		}
		if gpus > 0 && total.Cmp(*resource.NewQuantity(gpus, resource.DecimalSI)) > 0 {
			warnings = append(warnings, fmt.Sprintf(
				"%s: node pool %s has %d GPUs, and %s are now guaranteed to departments: not all departments can use their guarantee at the same time",
				path.Index(i).Child("gpu", "guaranteed"), quota.Name, gpus, tenancy.NodePoolGPUs(quota.Name).FormatAmount(total)))
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
