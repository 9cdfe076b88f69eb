// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

// managed are the fields that whoever manages a project writes: its people and its
// quotas, which are judged as everybody's are, and limits to tighten. Every field
// that is not here, and all metadata, since policies go by it, is for those who
// administer the department.
var managed = []string{"spec.members", "spec.nodePools", "spec.resources", "spec.workloads"}

// Beyond tells what of a change is not for those who only manage the project. Which
// members are, and how much, is [Validate]'s to say.
func Beyond(before, after *v1alpha1.Project) (field.ErrorList, error) {
	changed, err := access.Changed(before, after)
	if err != nil {
		return nil, err
	}
	ask := fmt.Sprintf("ask a member of department %s with the role %s, or a system administrator", before.Spec.Department, v1alpha1.RoleDepartmentAdministrator)
	var errs field.ErrorList
	for _, change := range changed {
		if !slices.Contains(managed, change.Path) {
			errs = append(errs, change.Refused("whoever manages a project changes its spec.members, spec.nodePools, spec.resources "+
				"and, to tighten them, spec.workloads, and nothing else: "+ask))
		}
	}
	errs = append(errs, heavier(before, after, ask)...)
	path := field.NewPath("spec", "workloads")
	for _, loose := range v1alpha1.Loosened(before.Spec.Workloads, after.Spec.Workloads) {
		at := path.Key(string(loose.Type)).Child(loose.Field)
		why := fmt.Sprintf("whoever manages a project tightens its limits and never loosens them; the project has %s: %s", loose.Bound, ask)
		if loose.Value == "" {
			errs = append(errs, field.Required(at, why))
			continue
		}
		errs = append(errs, field.Invalid(at, loose.Value, why))
	}
	return errs, nil
}

// heavier refuses a larger part in what is idle: that is others' as much, and no sum
// bounds it.
func heavier(before, after *v1alpha1.Project, ask string) (errs field.ErrorList) {
	had := map[string]int32{}
	for i := range before.Spec.NodePools {
		had[before.Spec.NodePools[i].Name] = before.Spec.NodePools[i].GPU.Weight()
	}
	for i := range after.Spec.NodePools {
		pool := &after.Spec.NodePools[i]
		most, known := had[pool.Name]
		if !known {
			most = v1alpha1.GPUQuota{}.Weight()
		}
		if weight := pool.GPU.Weight(); weight > most {
			errs = append(errs, field.Invalid(field.NewPath("spec", "nodePools").Index(i).Child("gpu", "overQuotaWeight"), weight,
				fmt.Sprintf("whoever manages a project does not raise its part in what is idle; it is %d: %s", most, ask)))
		}
	}
	return errs
}
