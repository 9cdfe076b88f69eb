// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	"sluice.dev/webhook/validation"
)

// Validate returns all errors of the project's spec, and warnings of side effects. authority is the writer's. before is
// nil for a new project. Only a new project's namespace is validated, since it is immutable; lifecycle handles later
// changes of the namespace itself.
func Validate(before, project *v1alpha1.Project, authority validation.Authority, state ClusterState) (field.ErrorList, []string) {
	spec := field.NewPath("spec")
	var old v1alpha1.Project
	if before != nil {
		old = *before
	}
	members := spec.Child("members")
	errs, warnings := validation.ValidateMembers(members, old.Spec.Members, project.Spec.Members, authority, state.projectOfNamespace(project))
	errs = append(errs, validation.ValidateOwners(spec.Child("owners"), old.Spec.Owners, project.Spec.Owners)...)
	pools := spec.Child("nodePools")
	warnings = append(warnings, validation.WarnBelowUsage(pools, old.Spec.NodePools, project.Spec.NodePools, old.Status.NodePools)...)
	if state.Department == nil {
		errs = append(errs, field.Invalid(spec.Child("department"), project.Spec.Department,
			"there is no such department; name one of `kubectl get departments.sluice.dev`, or create it first"))
	} else {
		moreErrs, moreWarnings := validateAgainstDepartment(spec, before, project, state)
		errs, warnings = append(errs, moreErrs...), append(warnings, moreWarnings...)
	}
	if before == nil && !state.hasProject(project.Name) {
		errs = append(errs, validateNamespace(spec.Child("namespace"), project, state)...)
	}
	return errs, warnings
}

// validateAgainstDepartment validates the project against its department.
func validateAgainstDepartment(spec *field.Path, before, project *v1alpha1.Project, state ClusterState) (field.ErrorList, []string) {
	if before != nil && before.Spec.Department != project.Spec.Department {
		before = nil // the project is new in its department
	}
	errs := validatePools(spec.Child("nodePools"), project, state.Department)
	quotaErrs, warnings := validation.ValidateProjectQuota(spec, before, project, state.Department, state.Projects, state.NodePools)
	errs = append(errs, quotaErrs...)
	errs = append(errs, validatePodSecurity(spec.Child("podSecurity"), before, project, state.Department)...)
	errs = append(errs, validateLimits(spec.Child("workloads"), project, state.Department)...)
	errs = append(errs, validateObjectLimits(spec.Child("objects"), before, project, state.Department)...)
	return errs, warnings
}

func validateNamespace(path *field.Path, project *v1alpha1.Project, state ClusterState) field.ErrorList {
	name := project.NamespaceName()
	if other := state.conflictingProject(project); other != "" {
		return field.ErrorList{field.Invalid(path, name, tenancy.NewNamespaceTakenError(name, other).Message)}
	}
	if reason := state.Reserved[name]; reason != "" {
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("is reserved: %s; choose another name", reason))}
	}
	if _, denial := tenancy.DecideClaim(project, state.Namespace); denial != nil {
		return field.ErrorList{field.Invalid(path, name, denial.Message)}
	}
	// A namespace that exists has the consent of a user who may update it.
	for _, pattern := range state.ReservedPatterns {
		if state.Namespace == nil && pattern.Matches(name) {
			return field.ErrorList{field.Invalid(path, name, fmt.Sprintf(
				"is reserved: %s is for components of the cluster (AdmissionParameters, reservedNamespaces); choose another name", pattern))}
		}
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

// validatePodSecurity denies a level that is looser than the department's. An unchanged level is valid: the
// department's level applies anyway.
func validatePodSecurity(path *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	requested := project.Spec.PodSecurity
	if requested == "" || before != nil && before.Spec.PodSecurity == requested {
		return nil
	}
	if effective := input.EffectivePodSecurity(project, department); effective != requested {
		return field.ErrorList{field.Invalid(path, requested, fmt.Sprintf(
			"a project's level can be stricter than its department's, never looser; department %s has %s", department.Name, effective))}
	}
	return nil
}

func validateLimits(path *field.Path, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	var errs field.ErrorList
	for _, loose := range v1alpha1.FindLimitsAboveDepartment(project.Spec.Workloads, department.Spec.Workloads) {
		errs = append(errs, field.Invalid(path.Key(string(loose.Type)).Child(loose.Field), loose.Value,
			fmt.Sprintf("a project may tighten its department's limits, never loosen them; department %s has %s", department.Name, loose.Bound)))
	}
	return errs
}

// validateObjectLimits denies limits above the department's. An unchanged limit is valid: the department's applies
// anyway.
func validateObjectLimits(path *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	bounds := v1alpha1.EffectiveObjectLimits(nil, department.Spec.Objects)
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(project.Spec.Objects)) {
		requested := project.Spec.Objects[name]
		bound, bounded := bounds[name]
		if !bounded || requested <= bound || before != nil && before.Spec.Objects[name] == requested {
			continue
		}
		errs = append(errs, field.Invalid(path.Key(name), int64(requested),
			fmt.Sprintf("a project may tighten its department's limits, never loosen them; department %s has %d", department.Name, bound)))
	}
	return errs
}

// managerFields are the fields that a project manager writes: members, quotas and limits. Only an administrator of the
// department changes other fields, and the metadata, which policies can depend on.
var managerFields = []string{"spec.members", "spec.nodePools", "spec.resources", "spec.workloads"}

// ValidateManagerChange denies the changes that a project manager cannot make. [Validate] checks the values of the
// members and quotas.
func ValidateManagerChange(before, after *v1alpha1.Project) (field.ErrorList, error) {
	changed, err := validation.ChangedFields(before, after)
	if err != nil {
		return nil, err
	}
	fix := fmt.Sprintf("ask a member of department %s with the role %s, or a system administrator",
		before.Spec.Department, v1alpha1.RoleDepartmentAdministrator)
	var errs field.ErrorList
	for _, change := range changed {
		if !slices.Contains(managerFields, change.Path) {
			errs = append(errs, change.Deny("a project manager changes only its spec.members, spec.nodePools, spec.resources "+
				"and, to tighten them, spec.workloads: "+fix))
		}
	}
	errs = append(errs, validateOverQuotaWeights(before, after, fix)...)
	path := field.NewPath("spec", "workloads")
	for _, loose := range v1alpha1.FindLimitsLoosenedByUpdate(before.Spec.Workloads, after.Spec.Workloads) {
		limitPath := path.Key(string(loose.Type)).Child(loose.Field)
		reason := fmt.Sprintf("a project manager can tighten its limits, never loosen them; the project has %s: %s", loose.Bound, fix)
		if loose.Value == "" {
			errs = append(errs, field.Required(limitPath, reason))
			continue
		}
		errs = append(errs, field.Invalid(limitPath, loose.Value, reason))
	}
	return errs, nil
}

// validateOverQuotaWeights denies a larger share of idle GPUs. It would take them from other projects, and no sum of the
// department limits it.
func validateOverQuotaWeights(before, after *v1alpha1.Project, fix string) (errs field.ErrorList) {
	weights := map[string]int32{}
	for i := range before.Spec.NodePools {
		weights[before.Spec.NodePools[i].Name] = before.Spec.NodePools[i].GPU.Weight()
	}
	for i := range after.Spec.NodePools {
		pool := &after.Spec.NodePools[i]
		limit, ok := weights[pool.Name]
		if !ok {
			limit = v1alpha1.GPUQuota{}.Weight()
		}
		if weight := pool.GPU.Weight(); weight > limit {
			errs = append(errs, field.Invalid(field.NewPath("spec", "nodePools").Index(i).Child("gpu", "overQuotaWeight"), weight,
				fmt.Sprintf("a project manager cannot raise the project's share of idle GPUs; it is %d: %s", limit, fix)))
		}
	}
	return errs
}
