// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/facts"
)

// Subject is whose objects are rendered, and what policies are told of it.
type Subject struct {
	place   Place
	matched engine.Subject
	// told are the documents of the input; nil ones are undefined.
	object, project, department, nodePools, nodePool any
}

// OfProject is a project, of this department and with these of its node pools: those
// that exist, as policies see them.
func OfProject(project *v1alpha1.Project, department *v1alpha1.Department, pools []facts.Pool) Subject {
	declared := project.DeepCopy()
	declared.Status = v1alpha1.ProjectStatus{}
	return Subject{
		place:   PlaceOf(project),
		matched: engine.Subject{Department: project.Spec.Department, Project: project.Name},
		object:  asDeclared(declared, ForProject),
		project: facts.OfProject(project, department), department: facts.OfDepartment(department), nodePools: pools,
	}
}

// OfDepartment is a department with these of its node pools: those that exist, as
// policies see them.
func OfDepartment(department *v1alpha1.Department, pools []facts.Pool) Subject {
	declared := department.DeepCopy()
	declared.Status = v1alpha1.DepartmentStatus{}
	return Subject{
		place:   ClusterWide(ForDepartment, department.Name),
		matched: engine.Subject{Department: department.Name},
		object:  asDeclared(declared, ForDepartment),
		// A department has no project, whatever a rule may ask for.
		department: facts.OfDepartment(department), nodePools: pools,
	}
}

// OfNodePool is a node pool, as policies see it.
func OfNodePool(pool *v1alpha1.NodePool, seen facts.Pool) Subject {
	declared := pool.DeepCopy()
	declared.Status = v1alpha1.NodePoolStatus{}
	return Subject{
		place:    ClusterWide(ForNodePool, pool.Name),
		object:   asDeclared(declared, ForNodePool),
		nodePool: seen,
	}
}

// Place is where the subject's objects are.
func (s Subject) Place() Place { return s.place }

// asDeclared is the subject as people declared it: what is rendered must not depend
// on the status, which lifecycle itself writes.
func asDeclared(object client.Object, kind SubjectKind) client.Object {
	object.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(string(kind)))
	object.SetResourceVersion("")
	object.SetFinalizers(nil)
	return object
}

// Ask asks the policies in force for the objects of a subject. The error means
// that they could not be asked at all; a policy that fails is a Fault.
func Ask(ctx context.Context, policies *engine.Engine, subject Subject) (Wanted, error) {
	in, err := subject.input()
	if err != nil {
		return Wanted{}, fmt.Errorf("%s: %w", subject.place, err)
	}
	rendering, err := policies.EvaluateObjects(ctx, in)
	if err != nil {
		return Wanted{}, fmt.Errorf("asking the policies for the objects of %s: %w", subject.place, err)
	}
	return Check(rendering, subject.place), nil
}

func (s Subject) input() (engine.Input, error) {
	in := engine.Input{Subject: s.matched}
	for _, document := range []struct {
		into  *engine.Document
		value any
	}{
		{&in.Object, s.object},
		{&in.Project, s.project},
		{&in.Department, s.department},
		{&in.NodePools, s.nodePools},
		{&in.NodePool, s.nodePool},
	} {
		if document.value == nil {
			continue
		}
		var err error
		if *document.into, err = engine.FromGo(document.value); err != nil {
			return engine.Input{}, err
		}
	}
	return in, nil
}
