// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/input"
)

// Subject is a project, department or node pool with the documents of policy input.
type Subject struct {
	target Target
	match  engine.Subject
	// The documents of the input; a nil one is undefined.
	object, project, department, nodePools, nodePool any
}

// ProjectSubject returns a project with its department and those of its node pools
// that exist.
func ProjectSubject(project *v1alpha1.Project, department *v1alpha1.Department, pools []input.NodePool) Subject {
	declared := project.DeepCopy()
	declared.Status = v1alpha1.ProjectStatus{}
	return Subject{
		target:  ProjectTarget(project),
		match:   engine.Subject{Department: project.Spec.Department, Project: project.Name},
		object:  declaredObject(declared, SubjectProject),
		project: input.NewProject(project, department, nil), department: input.NewDepartment(department), nodePools: pools,
	}
}

// DepartmentSubject returns a department with those of its node pools that exist.
func DepartmentSubject(department *v1alpha1.Department, pools []input.NodePool) Subject {
	declared := department.DeepCopy()
	declared.Status = v1alpha1.DepartmentStatus{}
	return Subject{
		target:     ClusterTarget(SubjectDepartment, department.Name),
		match:      engine.Subject{Department: department.Name},
		object:     declaredObject(declared, SubjectDepartment),
		department: input.NewDepartment(department), nodePools: pools,
	}
}

// NodePoolSubject returns a node pool.
func NodePoolSubject(pool *v1alpha1.NodePool, document input.NodePool) Subject {
	declared := pool.DeepCopy()
	declared.Status = v1alpha1.NodePoolStatus{}
	return Subject{
		target:   ClusterTarget(SubjectNodePool, pool.Name),
		object:   declaredObject(declared, SubjectNodePool),
		nodePool: document,
	}
}

// Target returns the place of the subject's objects.
func (s Subject) Target() Target { return s.target }

// declaredObject returns the subject without the fields that lifecycle itself writes,
// on which nothing rendered may depend.
func declaredObject(object client.Object, kind SubjectKind) client.Object {
	object.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(string(kind)))
	object.SetResourceVersion("")
	object.SetFinalizers(nil)
	return object
}

// Render evaluates the policies in force for the objects of a subject. A policy that
// fails is a Failure; the error means that no policy was evaluated.
func Render(ctx context.Context, policies *engine.Engine, subject Subject) (Desired, error) {
	in, err := subject.input()
	if err != nil {
		return Desired{}, fmt.Errorf("%s: %w", subject.target, err)
	}
	rendering, err := policies.RenderObjects(ctx, in)
	if err != nil {
		return Desired{}, fmt.Errorf("render the objects of %s: %w", subject.target, err)
	}
	return Validate(rendering, subject.target), nil
}

func (s Subject) input() (engine.Input, error) {
	in := engine.Input{Subject: s.match}
	for _, part := range []struct {
		into  *document.Document
		value any
	}{
		{&in.Object, s.object},
		{&in.Project, s.project},
		{&in.Department, s.department},
		{&in.NodePools, s.nodePools},
		{&in.NodePool, s.nodePool},
	} {
		if part.value == nil {
			continue
		}
		var err error
		if *part.into, err = document.FromGo(part.value); err != nil {
			return engine.Input{}, err
		}
	}
	return in, nil
}

// RenderRequirements returns what policies require for a subject, and the policies that
// failed, without those in dry run. The error means that no policy was evaluated.
func RenderRequirements(ctx context.Context, policies *engine.Set, subject Subject) ([]engine.Requirement, []engine.Failure, error) {
	in, err := subject.input()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", subject.target, err)
	}
	rendering, err := policies.RenderObjects(ctx, in)
	if err != nil {
		return nil, nil, fmt.Errorf("render the requirements of %s: %w", subject.target, err)
	}
	failures := slices.DeleteFunc(rendering.Failures, func(f engine.Failure) bool {
		return f.Enforcement == v1alpha1.EnforcementDryRun
	})
	return rendering.Requires, failures, nil
}

// PolicyChanges calls listeners after every change of the policies in force, and at
// once for the last change: a store.Store.
type PolicyChanges interface {
	OnReports(listener func([]engine.Report))
}

// PolicyChangeSource returns a source that enqueues all subjects of a controller when
// the policies change. The controller starts once policies are loaded.
func PolicyChangeSource(changes PolicyChanges, listRequests func(context.Context) []reconcile.Request) source.SyncingSource {
	return &policyChangeSource{changes: changes, listRequests: listRequests, loaded: make(chan struct{})}
}

type policyChangeSource struct {
	changes      PolicyChanges
	listRequests func(context.Context) []reconcile.Request
	once         sync.Once
	loaded       chan struct{}
}

// Start implements source.Source.
func (s *policyChangeSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.changes.OnReports(func([]engine.Report) {
		first := false
		s.once.Do(func() { first = true; close(s.loaded) })
		// The controller starts after the first change, with all subjects in its queue.
		if first || ctx.Err() != nil {
			return
		}
		for _, request := range s.listRequests(ctx) {
			queue.Add(request)
		}
	})
	return nil
}

// WaitForSync implements source.SyncingSource.
func (s *policyChangeSource) WaitForSync(ctx context.Context) error {
	select {
	case <-s.loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the policies: %w", ctx.Err())
	}
}
