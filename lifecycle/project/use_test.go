// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
)

// gpu is a GPUUse in words, as it is printed.
func gpu(u v1alpha1.GPUUse) string {
	return fmt.Sprintf("%s of %s, %s guaranteed, %s beyond, %s pending", &u.Allocated, &u.Limit, &u.Guaranteed, &u.OverQuota, &u.Pending)
}

func TestUse(t *testing.T) {
	schedulers := map[string]v1alpha1.Scheduler{
		"dgx": v1alpha1.SchedulerKube, "old": v1alpha1.SchedulerKube, "kai-a": v1alpha1.SchedulerKAI, "kai-b": v1alpha1.SchedulerKAI,
	}
	has := func(pool, guaranteed, limit string) v1alpha1.PoolQuota {
		return v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
	}
	shared := quota("dgx", "3000", "3000", "2000")
	shared.Status.Hard["requests.sluice.dev/gpu-milli"] = resource.MustParse("3000")
	shared.Status.Used["requests.sluice.dev/gpu-milli"] = resource.MustParse("700")
	tests := map[string]struct {
		pools  []v1alpha1.PoolQuota
		quotas []corev1.ResourceQuota
		all    string
		each   map[string]string
	}{
		"nothing": {all: "2 of 0, 0 guaranteed, 2 beyond, 250m pending"},
		"not counted yet": {
			pools: []v1alpha1.PoolQuota{has("dgx", "500m", "1")},
			all:   "2 of 1, 500m guaranteed, 1500m beyond, 250m pending",
		},
		"two pools, of which one is counted": {
			pools:  []v1alpha1.PoolQuota{has("dgx", "500m", "1"), has("old", "0.25", "2.5")},
			quotas: []corev1.ResourceQuota{quota("dgx", "1000", "1000", "125")},
			all:    "2 of 3500m, 750m guaranteed, 1250m beyond, 250m pending",
			each:   map[string]string{"dgx": "1 of 1, 500m guaranteed, 500m beyond, 250m pending"},
		},
		"one that is missing counts in the quota alone": {
			pools: []v1alpha1.PoolQuota{has("gone", "1", "2")},
			all:   "2 of 2, 1 guaranteed, 1 beyond, 250m pending",
		},
		"two that are counted together": {
			pools:  []v1alpha1.PoolQuota{has("dgx", "0", "3"), has("kai-a", "0", "1"), has("kai-b", "0", "2")},
			quotas: []corev1.ResourceQuota{shared},
			all:    "2 of 6, 0 guaranteed, 2 beyond, 250m pending",
			each: map[string]string{
				"dgx":   "1 of 3, 0 guaranteed, 1 beyond, 250m pending",
				"kai-a": "0 of 1, 0 guaranteed, 0 beyond, 0 pending", "kai-b": "1 of 2, 0 guaranteed, 1 beyond, 0 pending",
			},
		},
		"what nobody guarantees in one pool is beyond, whatever is free in another": {
			pools:  []v1alpha1.PoolQuota{has("dgx", "0", "3"), has("old", "5", "5")},
			quotas: []corev1.ResourceQuota{quota("dgx", "3000", "3000", "1000"), quota("old", "5000", "5000", "0")},
			all:    "2 of 8, 5 guaranteed, 1 beyond, 250m pending",
			each: map[string]string{
				"dgx": "1 of 3, 0 guaranteed, 1 beyond, 250m pending", "old": "0 of 5, 5 guaranteed, 0 beyond, 0 pending",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{NodePools: tc.pools}}
			p.Status.GPU = v1alpha1.GPUUse{Allocated: resource.MustParse("2"), Pending: resource.MustParse("250m")}
			p.Status.NodePools = []v1alpha1.PoolUse{
				{Name: "dgx", GPUUse: v1alpha1.GPUUse{Allocated: resource.MustParse("1"), Pending: resource.MustParse("250m")}},
				{Name: "kai-b", GPUUse: v1alpha1.GPUUse{Allocated: resource.MustParse("1")}},
			}
			pools := facts.OfPools(p, func(name string) *v1alpha1.NodePool {
				if schedulers[name] == "" {
					return nil
				}
				return &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePoolSpec{Scheduler: schedulers[name]}}
			})
			all, each := Use(p, pools, tc.quotas, []Stray{{Pool: "dgx", Share: 250}, {Pool: "dgx", Share: 500}, {}})
			if got := gpu(all); got != tc.all {
				t.Errorf("all = %s, want %s", got, tc.all)
			}
			var got map[string]string
			for _, use := range each {
				if got == nil {
					got = map[string]string{}
				}
				got[use.Name] = gpu(use.GPUUse)
				if want := map[string]int64{"dgx": 750}[use.Name]; use.Uncounted.MilliValue() != want {
					t.Errorf("%s: %s uncounted, want %dm", use.Name, &use.Uncounted, want)
				}
			}
			if diff := cmp.Diff(tc.each, got); diff != "" {
				t.Errorf("each (-want +got)\n%s", diff)
			}
		})
	}
}

func TestUsedAlone(t *testing.T) {
	before := quota("dgx", "1000", "1000", "0")
	change := func(f func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
		q := before.DeepCopy()
		f(q)
		return q
	}
	more := corev1.ResourceList{"requests.sluice.dev/gpu-milli.dgx": resource.MustParse("2000")}
	tests := map[string]struct {
		after *corev1.ResourceQuota
		want  bool
	}{
		"used":    {change(func(q *corev1.ResourceQuota) { q.Status.Used, q.ResourceVersion = more, "2" }), true},
		"spec":    {change(func(q *corev1.ResourceQuota) { q.Spec.Hard = more }), false},
		"counted": {change(func(q *corev1.ResourceQuota) { q.Status.Hard = more }), false},
		"labels":  {change(func(q *corev1.ResourceQuota) { q.Labels = map[string]string{"a": "b"} }), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := usedAlone(&before, tc.after); got != tc.want {
				t.Errorf("usedAlone = %v, want %v", got, tc.want)
			}
		})
	}
	if usedAlone(&corev1.LimitRange{}, &corev1.LimitRange{}) {
		t.Error("another kind has no use")
	}
}
