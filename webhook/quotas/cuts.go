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

// Cuts warns of each quota that is cut below what is in use. Nothing is stopped
// for it.
func Cuts(path *field.Path, before, after []v1alpha1.PoolQuota, use []v1alpha1.PoolUse) []string {
	var warnings []string
	for i := range before {
		name := before[i].Name
		inUse := allocated(use, name)
		if inUse.IsZero() {
			continue
		}
		gpus := promises.GPUsOf(name)
		at, now := find(after, name)
		switch {
		case now == nil:
			warnings = append(warnings, fmt.Sprintf("%s: node pool %s is taken away while it uses %s of it: nothing is stopped for that, but nothing new starts there",
				path, name, gpus.Amount(inUse)))
		case lowered(before[i].GPU.Most(), now.Most()) && inUse.Cmp(now.Most()) > 0:
			warnings = append(warnings, fmt.Sprintf("%s: it uses %s of node pool %s, %s more than it may from now on: nothing is stopped for that, but no new GPU pods start until enough have ended",
				path.Index(at).Child("gpu"), gpus.Amount(inUse), name, less(inUse, now.Most())))
		case lowered(before[i].GPU.Guaranteed, now.Guaranteed) && inUse.Cmp(now.Guaranteed) > 0:
			warnings = append(warnings, fmt.Sprintf("%s: it uses %s of node pool %s, %s more than is guaranteed from now on: nothing is stopped for that, but what is preemptible may have to make room when others claim their guarantee",
				path.Index(at).Child("gpu", "guaranteed"), gpus.Amount(inUse), name, less(inUse, now.Guaranteed)))
		}
	}
	return warnings
}

func allocated(use []v1alpha1.PoolUse, pool string) resource.Quantity {
	for i := range use {
		if use[i].Name == pool {
			return use[i].Allocated
		}
	}
	return resource.Quantity{}
}

// find is the place and the quota of the pool; nil where it is not listed.
func find(quotas []v1alpha1.PoolQuota, pool string) (int, *v1alpha1.GPUQuota) {
	for i := range quotas {
		if quotas[i].Name == pool {
			return i, &quotas[i].GPU
		}
	}
	return -1, nil
}

func lowered(before, after resource.Quantity) bool { return after.Cmp(before) < 0 }

// less is how much more the one is than the other, as people write GPUs.
func less(all, part resource.Quantity) string {
	all.Sub(part)
	return resource.NewMilliQuantity(all.MilliValue(), resource.DecimalSI).String()
}
