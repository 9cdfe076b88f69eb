// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

func inWords(u v1alpha1.GPUUse) string {
	return fmt.Sprintf("%s of %s, %s guaranteed, %s beyond, %s pending", &u.Allocated, &u.Limit, &u.Guaranteed, &u.OverQuota, &u.Pending)
}

func TestSums(t *testing.T) {
	may := func(pool, guaranteed, limit string) v1alpha1.PoolQuota {
		return v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
	}
	use := func(allocated, pending string) v1alpha1.GPUUse {
		return v1alpha1.GPUUse{Allocated: resource.MustParse(allocated), Pending: resource.MustParse(pending)}
	}
	has := func(all v1alpha1.GPUUse, each ...v1alpha1.PoolUse) v1alpha1.Project {
		return v1alpha1.Project{Status: v1alpha1.ProjectStatus{GPU: all, NodePools: each}}
	}
	in := func(pool string, use v1alpha1.GPUUse) v1alpha1.PoolUse {
		return v1alpha1.PoolUse{Name: pool, GPUUse: use, Uncounted: resource.MustParse("125m")}
	}
	tests := map[string]struct {
		quotas   []v1alpha1.PoolQuota
		projects []v1alpha1.Project
		all      string
		each     []string
	}{
		"without projects": {
			quotas: []v1alpha1.PoolQuota{may("dgx", "0.5", "1")},
			all:    "0 of 1, 500m guaranteed, 0 beyond, 0 pending", each: []string{"dgx: 0 of 1, 500m guaranteed, 0 beyond, 0 pending, 0 uncounted"},
		},
		"two projects in two pools": {
			quotas: []v1alpha1.PoolQuota{may("dgx", "1", "4"), may("cut", "500m", "1")},
			projects: []v1alpha1.Project{
				has(use("1500m", "250m"), in("dgx", use("1", "0")), in("cut", use("500m", "250m"))),
				has(use("125m", "2"), in("cut", use("125m", "0")), in("gone", use("9", "9"))),
			},
			all: "1625m of 5, 1500m guaranteed, 125m beyond, 2250m pending",
			each: []string{
				"dgx: 1 of 4, 1 guaranteed, 0 beyond, 0 pending, 125m uncounted",
				"cut: 625m of 1, 500m guaranteed, 125m beyond, 250m pending, 250m uncounted",
			},
		},
		"what may not be borrowed is no limit": {
			quotas: []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("2"), Limit: resource.MustParse("4"), OverQuotaWeight: new(int32)}}},
			all:    "0 of 2, 2 guaranteed, 0 beyond, 0 pending", each: []string{"dgx: 0 of 2, 2 guaranteed, 0 beyond, 0 pending, 0 uncounted"},
		},
		"nothing": {all: "0 of 0, 0 guaranteed, 0 beyond, 0 pending"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all, each := Sums(&v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: tc.quotas}}, tc.projects)
			if got := inWords(all); got != tc.all {
				t.Errorf("all = %s, want %s", got, tc.all)
			}
			var got []string
			for _, use := range each {
				got = append(got, fmt.Sprintf("%s: %s, %s uncounted", use.Name, inWords(use.GPUUse), &use.Uncounted))
			}
			if diff := cmp.Diff(tc.each, got); diff != "" {
				t.Errorf("each (-want +got)\n%s", diff)
			}
		})
	}
}
