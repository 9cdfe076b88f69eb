// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/facts"
)

// Subject is whose objects are rendered.
type Subject struct {
	// Project is the project.
	Project *v1alpha1.Project
	// Department is the project's.
	Department *v1alpha1.Department
	// Pools are the project's that exist, as policies see them.
	Pools []facts.Pool
}

// Ask asks the policies in force for the objects of a project. The error means
// that they could not be asked at all; a policy that fails is a Fault.
func Ask(ctx context.Context, policies *engine.Engine, subject Subject) (Wanted, error) {
	in, err := input(subject)
	if err != nil {
		return Wanted{}, fmt.Errorf("project %s: %w", subject.Project.Name, err)
	}
	rendering, err := policies.EvaluateObjects(ctx, in)
	if err != nil {
		return Wanted{}, fmt.Errorf("asking the policies for the objects of project %s: %w", subject.Project.Name, err)
	}
	return Check(rendering, PlaceOf(subject.Project)), nil
}

func input(subject Subject) (engine.Input, error) {
	in := engine.Input{Subject: engine.Subject{
		Department: subject.Project.Spec.Department,
		Project:    subject.Project.Name,
	}}
	for _, document := range []struct {
		into  *engine.Document
		value any
	}{
		{&in.Object, declared(subject.Project)},
		{&in.Project, facts.OfProject(subject.Project, subject.Department)},
		{&in.Department, facts.OfDepartment(subject.Department)},
		{&in.NodePools, subject.Pools},
	} {
		var err error
		if *document.into, err = engine.FromGo(document.value); err != nil {
			return engine.Input{}, err
		}
	}
	return in, nil
}

// declared is the project as people declared it: what is rendered must not
// depend on the status, which lifecycle itself writes.
func declared(project *v1alpha1.Project) *v1alpha1.Project {
	declared := project.DeepCopy()
	declared.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Project"))
	declared.Status = v1alpha1.ProjectStatus{}
	declared.ResourceVersion = ""
	return declared
}
