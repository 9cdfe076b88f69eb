// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func TestBuildStatus(t *testing.T) {
	d := &v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: []v1alpha1.PoolQuota{{Name: "dgx"}, {Name: "h200"}}}}
	tests := map[string]struct {
		pools       []string
		status      metav1.ConditionStatus
		wantMessage string
	}{
		"all there":   {[]string{"h200", "dgx", "more"}, metav1.ConditionTrue, "all node pools of spec.nodePools exist"},
		"one missing": {[]string{"dgx"}, metav1.ConditionFalse, "no node pool h200"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var pools []v1alpha1.NodePool
			for _, name := range tc.pools {
				pools = append(pools, v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			got := BuildStatus(d, make([]v1alpha1.Project, 4), pools, metav1.Now())
			if got.Projects != 4 || len(got.Conditions) != 3 || got.Conditions[0].Status != tc.status || !strings.Contains(got.Conditions[0].Message, tc.wantMessage) {
				t.Errorf("status = %+v", got)
			}
			again := d.DeepCopy()
			again.Status = got
			if !equality.Semantic.DeepEqual(BuildStatus(again, make([]v1alpha1.Project, 4), pools, metav1.Now()), got) {
				t.Error("the second pass has another status")
			}
		})
	}
}

func TestOversubscribedCondition(t *testing.T) {
	pool := func(guaranteed string) []v1alpha1.PoolQuota {
		return []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse("8")}}}
	}
	project := func(name, guaranteed string) v1alpha1.Project {
		return v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{Department: "students", NodePools: pool(guaranteed)}}
	}
	both := []v1alpha1.Project{project("course", "1"), project("thesis", "500m")}
	const excess = "GPUs of node pool dgx: it has 1 and has promised 1500m (course 1, thesis 500m)"
	tests := map[string]struct {
		rule     v1alpha1.Oversubscription
		projects []v1alpha1.Project
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		"within":      {v1alpha1.OversubscriptionDeny, both[:1], metav1.ConditionFalse, "WithinQuota", "the guarantees of its projects are within its quota"},
		"too much":    {v1alpha1.OversubscriptionDeny, both, metav1.ConditionTrue, "GuaranteesExceedQuota", excess + "; lower the guarantees of its projects, or set spec.oversubscription to Allow"},
		"and allowed": {v1alpha1.OversubscriptionAllow, both, metav1.ConditionTrue, "Allowed", "as spec.oversubscription allows, its projects cannot all have their guarantees at once: " + excess},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}, Spec: v1alpha1.DepartmentSpec{NodePools: pool("1"), Oversubscription: tc.rule}}
			got := OversubscribedCondition(d, tc.projects, metav1.Now())
			if got.Type != "Oversubscribed" || got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("condition = %+v", got)
			}
		})
	}
}

func TestUnsupportedCondition(t *testing.T) {
	quota := func(guaranteed, limit string) []v1alpha1.PoolQuota {
		return []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}}
	}
	tests := map[string]struct {
		scheduler   v1alpha1.Scheduler
		department  []v1alpha1.PoolQuota
		status      metav1.ConditionStatus
		reason      string
		wantMessage string
	}{
		"a queue can do all":   {v1alpha1.SchedulerKueue, quota("4", "4"), "False", v1alpha1.ReasonSupported, "all fields are supported"},
		"no guarantee":         {v1alpha1.SchedulerKube, quota("0", "4"), "False", v1alpha1.ReasonSupported, "all fields are supported"},
		"a guarantee":          {v1alpha1.SchedulerKube, quota("1", "4"), "True", v1alpha1.ReasonTrainingGuaranteeUnsupported, "training gets it only while there is room"},
		"a pool that is gone":  {"", quota("1", "1"), "False", v1alpha1.ReasonSupported, "all fields are supported"},
		"no pool of its own's": {v1alpha1.SchedulerKube, nil, "False", v1alpha1.ReasonSupported, "all fields are supported"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var pools []v1alpha1.NodePool
			if tc.scheduler != "" {
				pools = []v1alpha1.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Spec: v1alpha1.NodePoolSpec{Scheduler: tc.scheduler}}}
			}
			got := UnsupportedCondition(&v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: tc.department}}, pools, metav1.Now())
			if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.wantMessage) {
				t.Errorf("condition %s, %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
}

func formatUsage(u v1alpha1.GPUUsage) string {
	return fmt.Sprintf("%s of %s, %s guaranteed, %s beyond, %s pending", &u.Allocated, &u.Limit, &u.Guaranteed, &u.OverQuota, &u.Pending)
}

func TestComputeUsage(t *testing.T) {
	may := func(pool, guaranteed, limit string) v1alpha1.PoolQuota {
		return v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
	}
	use := func(allocated, pending string) v1alpha1.GPUUsage {
		return v1alpha1.GPUUsage{Allocated: resource.MustParse(allocated), Pending: resource.MustParse(pending)}
	}
	has := func(all v1alpha1.GPUUsage, each ...v1alpha1.PoolUsage) v1alpha1.Project {
		return v1alpha1.Project{Status: v1alpha1.ProjectStatus{GPU: all, NodePools: each}}
	}
	in := func(pool string, use v1alpha1.GPUUsage) v1alpha1.PoolUsage {
		return v1alpha1.PoolUsage{Name: pool, GPUUsage: use, Uncounted: resource.MustParse("125m")}
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
			quotas: []v1alpha1.PoolQuota{may("dgx", "1", "4"), may("mig", "500m", "1")},
			projects: []v1alpha1.Project{
				has(use("1500m", "250m"), in("dgx", use("1", "0")), in("mig", use("500m", "250m"))),
				has(use("125m", "2"), in("mig", use("125m", "0")), in("gone", use("9", "9"))),
			},
			all: "1625m of 5, 1500m guaranteed, 125m beyond, 2250m pending",
			each: []string{
				"dgx: 1 of 4, 1 guaranteed, 0 beyond, 0 pending, 125m uncounted",
				"mig: 625m of 1, 500m guaranteed, 125m beyond, 250m pending, 250m uncounted",
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
			all, each := ComputeUsage(&v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: tc.quotas}}, tc.projects)
			if got := formatUsage(all); got != tc.all {
				t.Errorf("all = %s, want %s", got, tc.all)
			}
			var got []string
			for _, use := range each {
				got = append(got, fmt.Sprintf("%s: %s, %s uncounted", use.Name, formatUsage(use.GPUUsage), &use.Uncounted))
			}
			if diff := cmp.Diff(tc.each, got); diff != "" {
				t.Errorf("each (-want +got)\n%s", diff)
			}
		})
	}
}
