// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
	"sluice.dev/webhook/access"
	"sluice.dev/webhook/quotas"
)

// Validate tells all that is wrong with the project, which somebody with that
// authority over its department writes, and what is allowed but will be felt.
// Before is the project as it was; nil where it is new. The namespace is judged
// only then: it cannot change afterwards, and what becomes of it later is
// lifecycle's to see.
func Validate(before, project *v1alpha1.Project, authority access.Authority, world World) (field.ErrorList, []string) {
	spec := field.NewPath("spec")
	var was v1alpha1.Project
	if before != nil {
		was = *before
	}
	errs, warnings := access.Members(spec.Child("members"), was.Spec.Members, project.Spec.Members, authority, world.projectOf(project))
	errs = append(errs, access.Owners(spec.Child("owners"), was.Spec.Owners, project.Spec.Owners)...)
	warnings = append(warnings, quotas.Cuts(spec.Child("nodePools"), was.Spec.NodePools, project.Spec.NodePools, was.Status.NodePools)...)
	if world.Department == nil {
		errs = append(errs, field.Invalid(spec.Child("department"), project.Spec.Department,
			"there is no such department; name one of `kubectl get departments.sluice.dev`, or create it first"))
	} else {
		more, felt := validateTerms(spec, before, project, world)
		errs, warnings = append(errs, more...), append(warnings, felt...)
	}
	if before == nil && !world.exists(project.Name) {
		errs = append(errs, validateNamespace(spec.Child("namespace"), project, world)...)
	}
	return errs, warnings
}

// validateTerms judges the project by its department.
func validateTerms(spec *field.Path, before, project *v1alpha1.Project, world World) (field.ErrorList, []string) {
	if before != nil && before.Spec.Department != project.Spec.Department {
		before = nil // to its new department it is new
	}
	errs := validatePools(spec.Child("nodePools"), project, world.Department)
	asked, warnings := quotas.Asked(spec, before, project, world.Department, world.Projects)
	errs = append(errs, asked...)
	errs = append(errs, validatePodSecurity(spec.Child("podSecurity"), before, project, world.Department)...)
	errs = append(errs, validateLimits(spec.Child("workloads"), project, world.Department)...)
	return errs, warnings
}

func validateNamespace(path *field.Path, project *v1alpha1.Project, world World) field.ErrorList {
	name := project.NamespaceName()
	if rival := world.rival(project); rival != "" {
		return field.ErrorList{field.Invalid(path, name, tenancy.Taken(name, rival).Message)}
	}
	if _, refusal := tenancy.Of(project, world.Namespace); refusal != nil {
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
	if holds := facts.PodSecurity(project, department); holds != asked {
		return field.ErrorList{field.Invalid(path, asked, fmt.Sprintf(
			"a project may be held to a stricter level than its department, never to a looser one; department %s has %s", department.Name, holds))}
	}
	return nil
}

func validateLimits(path *field.Path, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	var errs field.ErrorList
	for _, loose := range v1alpha1.Looser(project.Spec.Workloads, department.Spec.Workloads) {
		errs = append(errs, field.Invalid(path.Key(string(loose.Type)).Child(loose.Field), loose.Value,
			fmt.Sprintf("a project may tighten its department's limits, never loosen them; department %s has %s", department.Name, loose.Bound)))
	}
	return errs
}
