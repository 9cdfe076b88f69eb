// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	"sluice.dev/webhook/validation"
)

// Validate tells all that is wrong with the project, which somebody with that
// authority over its department writes, and what is allowed but will be felt.
// Before is the project as it was; nil where it is new. The namespace is judged
// only then: it cannot change afterwards, and what becomes of it later is
// lifecycle's to see.
func Validate(before, project *v1alpha1.Project, authority validation.Authority, world ClusterState) (field.ErrorList, []string) {
	spec := field.NewPath("spec")
	var was v1alpha1.Project
	if before != nil {
		was = *before
	}
	errs, warnings := validation.ValidateMembers(spec.Child("members"), was.Spec.Members, project.Spec.Members, authority, world.projectOfNamespace(project))
	errs = append(errs, validation.ValidateOwners(spec.Child("owners"), was.Spec.Owners, project.Spec.Owners)...)
	warnings = append(warnings, validation.WarnBelowUsage(spec.Child("nodePools"), was.Spec.NodePools, project.Spec.NodePools, was.Status.NodePools)...)
	if world.Department == nil {
		errs = append(errs, field.Invalid(spec.Child("department"), project.Spec.Department,
			"there is no such department; name one of `kubectl get departments.sluice.dev`, or create it first"))
	} else {
		more, felt := validateAgainstDepartment(spec, before, project, world)
		errs, warnings = append(errs, more...), append(warnings, felt...)
	}
	if before == nil && !world.hasProject(project.Name) {
		errs = append(errs, validateNamespace(spec.Child("namespace"), project, world)...)
	}
	return errs, warnings
}

// validateAgainstDepartment judges the project by its department.
func validateAgainstDepartment(spec *field.Path, before, project *v1alpha1.Project, world ClusterState) (field.ErrorList, []string) {
	if before != nil && before.Spec.Department != project.Spec.Department {
		before = nil // to its new department it is new
	}
	errs := validatePools(spec.Child("nodePools"), project, world.Department)
	asked, warnings := validation.ValidateProjectQuota(spec, before, project, world.Department, world.Projects)
	errs = append(errs, asked...)
	errs = append(errs, validatePodSecurity(spec.Child("podSecurity"), before, project, world.Department)...)
	errs = append(errs, validateLimits(spec.Child("workloads"), project, world.Department)...)
	return errs, warnings
}

func validateNamespace(path *field.Path, project *v1alpha1.Project, world ClusterState) field.ErrorList {
	name := project.NamespaceName()
	if rival := world.conflictingProject(project); rival != "" {
		return field.ErrorList{field.Invalid(path, name, tenancy.NewNamespaceTakenError(name, rival).Message)}
	}
	if _, refusal := tenancy.DecideClaim(project, world.Namespace); refusal != nil {
		return field.ErrorList{field.Invalid(path, name, refusal.Message)}
	}
	return nil
}

func validatePools(path *field.Path, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	var allowed []string
	for _, pool := range department.Spec.NodePools {
		allowed = append(allowed, pool.Name)
	}
	var errs field.ErrorList
	for i, pool := range project.Spec.NodePools {
		if !slices.Contains(allowed, pool.Name) {
			errs = append(errs, field.NotSupported(path.Index(i).Child("name"), pool.Name, allowed))
		}
	}
	return errs
}

// validatePodSecurity refuses a level that is looser than the department's. One
// that was allowed when it was written stands; the department's holds all the same.
func validatePodSecurity(path *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	asked := project.Spec.PodSecurity
	if asked == "" || before != nil && before.Spec.PodSecurity == asked {
		return nil
	}
	if holds := input.EffectivePodSecurity(project, department); holds != asked {
		return field.ErrorList{field.Invalid(path, asked, fmt.Sprintf(
			"a project's level can be stricter than its department's, never looser; department %s has %s", department.Name, holds))}
	}
	return nil
}

func validateLimits(path *field.Path, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	var errs field.ErrorList
	for _, loose := range v1alpha1.FindLooserLimits(project.Spec.Workloads, department.Spec.Workloads) {
		errs = append(errs, field.Invalid(path.Key(string(loose.Type)).Child(loose.Field), loose.Value,
			fmt.Sprintf("a project may tighten its department's limits, never loosen them; department %s has %s", department.Name, loose.Bound)))
	}
	return errs
}

// managerFields are the fields that whoever manages a project writes: its people and its
// quotas, which are judged as everybody's are, and limits to tighten. Every field
// that is not here, and all metadata, since policies go by it, is for those who
// administer the department.
var managerFields = []string{"spec.members", "spec.nodePools", "spec.resources", "spec.workloads"}

// ValidateManagerChange tells what of a change is not for those who only manage the project. Which
// members are, and how much, is [Validate]'s to say.
func ValidateManagerChange(before, after *v1alpha1.Project) (field.ErrorList, error) {
	changed, err := validation.ChangedFields(before, after)
	if err != nil {
		return nil, err
	}
	ask := fmt.Sprintf("ask a member of department %s with the role %s, or a system administrator", before.Spec.Department, v1alpha1.RoleDepartmentAdministrator)
	var errs field.ErrorList
	for _, change := range changed {
		if !slices.Contains(managerFields, change.Path) {
			errs = append(errs, change.Deny("a project manager changes only its spec.members, spec.nodePools, spec.resources "+
				"and, to tighten them, spec.workloads: "+ask))
		}
	}
	errs = append(errs, validateOverQuotaWeights(before, after, ask)...)
	path := field.NewPath("spec", "workloads")
	for _, loose := range v1alpha1.FindLoosenedLimits(before.Spec.Workloads, after.Spec.Workloads) {
		at := path.Key(string(loose.Type)).Child(loose.Field)
		why := fmt.Sprintf("a project manager can tighten its limits, never loosen them; the project has %s: %s", loose.Bound, ask)
		if loose.Value == "" {
			errs = append(errs, field.Required(at, why))
			continue
		}
		errs = append(errs, field.Invalid(at, loose.Value, why))
	}
	return errs, nil
}

// validateOverQuotaWeights refuses a larger part in what is idle: that is others' as much, and no sum
// bounds it.
func validateOverQuotaWeights(before, after *v1alpha1.Project, ask string) (errs field.ErrorList) {
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
				fmt.Sprintf("a project manager cannot raise the project's share of idle GPUs; it is %d: %s", most, ask)))
		}
	}
	return errs
}
