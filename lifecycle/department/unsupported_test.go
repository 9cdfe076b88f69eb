// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func TestUnsupported(t *testing.T) {
	quota := func(guaranteed, limit string) []v1alpha1.PoolQuota {
		return []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}}
	}
	project := func(limit string) v1alpha1.Project {
		return v1alpha1.Project{Spec: v1alpha1.ProjectSpec{NodePools: quota("0", limit)}}
	}
	tests := map[string]struct {
		scheduler  v1alpha1.Scheduler
		department []v1alpha1.PoolQuota
		projects   []v1alpha1.Project
		status     metav1.ConditionStatus
		reason     string
		says       string
	}{
		"a queue can do all":   {v1alpha1.SchedulerKueue, quota("4", "4"), []v1alpha1.Project{project("4"), project("4")}, "False", v1alpha1.ReasonSupported, "all"},
		"within the limit":     {v1alpha1.SchedulerKube, quota("0", "4"), []v1alpha1.Project{project("2"), project("2")}, "False", v1alpha1.ReasonSupported, "all"},
		"beyond it":            {v1alpha1.SchedulerKube, quota("0", "4"), []v1alpha1.Project{project("2500m"), project("2")}, "True", v1alpha1.ReasonDepartmentLimit, "add up to 4500m, and its own of 4 is not held"},
		"a guarantee":          {v1alpha1.SchedulerKube, quota("1", "4"), nil, "True", v1alpha1.ReasonGuaranteedTraining, "training has it as far as there is room"},
		"both":                 {v1alpha1.SchedulerKube, quota("1", "1"), []v1alpha1.Project{project("2")}, "True", v1alpha1.ReasonSeveral, "is not held"},
		"a pool that is gone":  {"", quota("1", "1"), []v1alpha1.Project{project("2")}, "False", v1alpha1.ReasonSupported, "all"},
		"no pool of its own's": {v1alpha1.SchedulerKube, nil, []v1alpha1.Project{project("2")}, "False", v1alpha1.ReasonSupported, "all"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var pools []v1alpha1.NodePool
			if tc.scheduler != "" {
				pools = []v1alpha1.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Spec: v1alpha1.NodePoolSpec{Scheduler: tc.scheduler}}}
			}
			got := Unsupported(&v1alpha1.Department{Spec: v1alpha1.DepartmentSpec{NodePools: tc.department}}, tc.projects, pools, metav1.Now())
			if got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.says) {
				t.Errorf("condition %s, %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
}
