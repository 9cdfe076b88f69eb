// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package quotas_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/quotas"
)

func TestCuts(t *testing.T) {
	quota := func(guaranteed, limit string) []v1alpha1.PoolQuota {
		return []v1alpha1.PoolQuota{pool("dgx", guaranteed, limit)}
	}
	unborrowing := quota("1", "4")
	unborrowing[0].GPU.OverQuotaWeight = ptr.To(int32(0))
	tests := map[string]struct {
		before, after []v1alpha1.PoolQuota
		inUse         string
		want          []string
	}{
		"new":                       {after: quota("1", "1"), inUse: "9"},
		"unchanged":                 {before: quota("1", "2"), after: quota("1", "2"), inUse: "9"},
		"raised":                    {before: quota("1", "2"), after: quota("2", "3"), inUse: "9"},
		"cut to what is in use":     {before: quota("4", "4"), after: quota("2", "2"), inUse: "2"},
		"nothing in use":            {before: quota("4", "4"), after: nil, inUse: "0"},
		"the limit, below its use":  {before: quota("4", "4"), after: quota("2", "2"), inUse: "2500m", want: []string{"spec.nodePools[0].gpu: it uses 2500m GPUs of node pool dgx, 500m more than it may from now on: nothing is stopped for that, but no new GPU pods start until enough have ended"}},
		"no borrowing any more":     {before: quota("1", "4"), after: unborrowing, inUse: "2", want: []string{"spec.nodePools[0].gpu: it uses 2 GPUs of node pool dgx, 1 more than it may from now on: nothing is stopped for that, but no new GPU pods start until enough have ended"}},
		"the guarantee only":        {before: quota("4", "4"), after: quota("1", "4"), inUse: "3", want: []string{"spec.nodePools[0].gpu.guaranteed: it uses 3 GPUs of node pool dgx, 2 more than is guaranteed from now on: nothing is stopped for that, but what is preemptible may have to make room when others claim their guarantee"}},
		"the pool that is in use":   {before: quota("4", "4"), after: nil, inUse: "1", want: []string{"spec.nodePools: node pool dgx is taken away while it uses 1 GPU of it: nothing is stopped for that, but nothing new starts there"}},
		"the limit, above its use":  {before: quota("4", "4"), after: quota("3", "3"), inUse: "2"},
		"borrowed, guarantee as is": {before: quota("1", "4"), after: quota("1", "3"), inUse: "2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			use := []v1alpha1.PoolUse{{Name: "dgx", GPUUse: v1alpha1.GPUUse{Allocated: resource.MustParse(tc.inUse)}}}
			expect(t, nil, quotas.Cuts(spec.Child("nodePools"), tc.before, tc.after, use), nil, tc.want)
		})
	}
}

func TestCapacity(t *testing.T) {
	quota := func(guaranteed string) *v1alpha1.Department {
		return department(none, pool("empty", "9", "9"), pool("dgx", guaranteed, "8"))
	}
	research := quota("5")
	research.Name = "research"
	pools := []v1alpha1.NodePool{
		{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Status: v1alpha1.NodePoolStatus{GPUs: 8}},
		{ObjectMeta: metav1.ObjectMeta{Name: "empty"}},
	}
	over := []string{"spec.nodePools[1].gpu.guaranteed: node pool dgx has 8 GPUs, and 9 GPUs are now guaranteed to departments: not all can have their guarantee at once"}
	tests := map[string]struct {
		before, after *v1alpha1.Department
		want          []string
	}{
		"all that there is": {after: quota("3")},
		"more":              {after: quota("4"), want: over},
		"raised to more":    {before: quota("3"), after: quota("4"), want: over},
		"as before":         {before: quota("4"), after: quota("4")},
		"less than before":  {before: quota("5"), after: quota("4")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := quotas.Capacity(spec.Child("nodePools"), tc.before, tc.after, []v1alpha1.Department{*quota("99"), *research}, pools)
			expect(t, nil, got, nil, tc.want)
		})
	}
}
