// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// OfDepartmentPools are the pools of a department that exist, in its order, with
// what it may have of each, and what its projects are guaranteed of that. Of the
// projects only those count that are the department's.
func OfDepartmentPools(department *v1alpha1.Department, projects []v1alpha1.Project, pools func(name string) *v1alpha1.NodePool) []Pool {
	facts := make([]Pool, 0, len(department.Spec.NodePools))
	for _, quota := range department.Spec.NodePools {
		if pool := pools(quota.Name); pool != nil {
			told := ofPool(pool, quota.GPU)
			told.Promised = toProjects(quota.Name, projects)[department.Name]
			facts = append(facts, told)
		}
	}
	return facts
}

// OfNodePool is a pool as nobody's: with what is promised of it, and no quota. Of a
// department that promised its projects more than it has itself, that counts.
func OfNodePool(pool *v1alpha1.NodePool, departments []v1alpha1.Department, projects []v1alpha1.Project) Pool {
	facts := ofPool(pool, v1alpha1.GPUQuota{OverQuotaWeight: new(int32)})
	promised := toProjects(pool.Name, projects)
	for i := range departments {
		own := guaranteedIn(pool.Name, departments[i].Spec.NodePools)
		facts.Promised += max(own, promised[departments[i].Name])
	}
	return facts
}

// toProjects is what projects are guaranteed of a pool, by their departments.
func toProjects(pool string, projects []v1alpha1.Project) map[string]workload.Milli {
	promised := map[string]workload.Milli{}
	for i := range projects {
		promised[projects[i].Spec.Department] += guaranteedIn(pool, projects[i].Spec.NodePools)
	}
	return promised
}

func guaranteedIn(pool string, quotas []v1alpha1.PoolQuota) (sum workload.Milli) {
	for _, quota := range quotas {
		if quota.Name == pool {
			sum += milli(quota.GPU.Guaranteed)
		}
	}
	return sum
}
