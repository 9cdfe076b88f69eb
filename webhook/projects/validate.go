// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// World is what a project is judged by.
type World struct {
	// Department is the one that the project names; nil where there is none.
	Department *v1alpha1.Department
	// Namespace is the one that the project names; nil where there is none.
	Namespace *corev1.Namespace
	// Exists is whether there is a project of this name already: then the API
	// server refuses to make another, and a word on its namespace would mislead.
	Exists bool
	// Rival is the name of another project that names the same namespace, if any.
	Rival string
}

// Validate tells all that is wrong with the project. The namespace is judged
// only when the project is new: it cannot change afterwards, and what becomes
// of it later is lifecycle's to see.
func Validate(project *v1alpha1.Project, isNew bool, world World) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if world.Department == nil {
		errs = append(errs, field.Invalid(spec.Child("department"), project.Spec.Department,
			"there is no such department; name one of `kubectl get departments.sluice.dev`, or create it first"))
	} else {
		errs = append(errs, validatePools(spec.Child("nodePools"), project, world.Department)...)
		errs = append(errs, validateLimits(spec.Child("workloads"), project, world.Department)...)
	}
	if isNew && !world.Exists {
		errs = append(errs, validateNamespace(spec.Child("namespace"), project, world)...)
	}
	return errs
}

func validateNamespace(path *field.Path, project *v1alpha1.Project, world World) field.ErrorList {
	name := project.NamespaceName()
	if world.Rival != "" {
		return field.ErrorList{field.Invalid(path, name, tenancy.Taken(name, world.Rival).Message)}
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

func validateLimits(path *field.Path, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	var errs field.ErrorList
	for _, loose := range v1alpha1.Looser(project.Spec.Workloads, department.Spec.Workloads) {
		errs = append(errs, field.Invalid(path.Key(string(loose.Type)).Child(loose.Field), loose.Value,
			fmt.Sprintf("a project may tighten its department's limits, never loosen them; department %s has %s", department.Name, loose.Bound)))
	}
	return errs
}
