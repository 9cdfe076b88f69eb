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

// Subject is whose objects are rendered, and what policies are told of it.
type Subject struct {
	target Target
	match  engine.Subject
	// told are the documents of the input; nil ones are undefined.
	object, project, department, nodePools, nodePool any
}

// ProjectSubject is a project, of this department and with these of its node pools: those
// that exist, as policies see them.
func ProjectSubject(project *v1alpha1.Project, department *v1alpha1.Department, pools []input.NodePool) Subject {
	declared := project.DeepCopy()
	declared.Status = v1alpha1.ProjectStatus{}
	return Subject{
		target:  ProjectTarget(project),
		match:   engine.Subject{Department: project.Spec.Department, Project: project.Name},
		object:  declaredObject(declared, SubjectProject),
		project: input.NewProject(project, department), department: input.NewDepartment(department), nodePools: pools,
	}
}

// DepartmentSubject is a department with these of its node pools: those that exist, as
// policies see them.
func DepartmentSubject(department *v1alpha1.Department, pools []input.NodePool) Subject {
	declared := department.DeepCopy()
	declared.Status = v1alpha1.DepartmentStatus{}
	return Subject{
		target: ClusterTarget(SubjectDepartment, department.Name),
		match:  engine.Subject{Department: department.Name},
		object: declaredObject(declared, SubjectDepartment),
		// A department has no project, whatever a rule may ask for.
		department: input.NewDepartment(department), nodePools: pools,
	}
}

// NodePoolSubject is a node pool, as policies see it.
func NodePoolSubject(pool *v1alpha1.NodePool, seen input.NodePool) Subject {
	declared := pool.DeepCopy()
	declared.Status = v1alpha1.NodePoolStatus{}
	return Subject{
		target:   ClusterTarget(SubjectNodePool, pool.Name),
		object:   declaredObject(declared, SubjectNodePool),
		nodePool: seen,
	}
}

// Target is where the subject's objects are.
func (s Subject) Target() Target { return s.target }

// declaredObject is the subject as people declared it: what is rendered must not depend
// on the status, which lifecycle itself writes.
func declaredObject(object client.Object, kind SubjectKind) client.Object {
	object.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(string(kind)))
	object.SetResourceVersion("")
	object.SetFinalizers(nil)
	return object
}

// Render asks the policies in force for the objects of a subject. The error means
// that they could not be asked at all; a policy that fails is a Fault.
func Render(ctx context.Context, policies *engine.Engine, subject Subject) (Desired, error) {
	in, err := subject.input()
	if err != nil {
		return Desired{}, fmt.Errorf("%s: %w", subject.target, err)
	}
	rendering, err := policies.RenderObjects(ctx, in)
	if err != nil {
		return Desired{}, fmt.Errorf("asking the policies for the objects of %s: %w", subject.target, err)
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

// RenderRequirements asks policies what they require for a subject. The failures are the
// policies of which that is not known; those that are only tried are left out. The
// error means that none could be asked.
func RenderRequirements(ctx context.Context, policies *engine.Set, subject Subject) ([]engine.Requirement, []engine.Failure, error) {
	in, err := subject.input()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", subject.target, err)
	}
	rendering, err := policies.RenderObjects(ctx, in)
	if err != nil {
		return nil, nil, fmt.Errorf("asking the policies what they require for %s: %w", subject.target, err)
	}
	failures := slices.DeleteFunc(rendering.Failures, func(f engine.Failure) bool {
		return f.Enforcement == v1alpha1.EnforcementDryRun
	})
	return rendering.Requires, failures, nil
}

// PolicyChanges tells listeners of every change of the policies in force, after it, and
// at once of the last where there was one: a store.Store.
type PolicyChanges interface {
	OnReports(listener func([]engine.Report))
}

// PolicyChangeSource is the source of a controller that looks at all its subjects again
// when other policies are in force, since they may render something else. The
// controller begins to work once policies are loaded.
func PolicyChangeSource(changes PolicyChanges, all func(context.Context) []reconcile.Request) source.SyncingSource {
	return &policyChangeSource{changes: changes, listRequests: all, loaded: make(chan struct{})}
}

type policyChangeSource struct {
	changes      PolicyChanges
	listRequests func(context.Context) []reconcile.Request
	once         sync.Once
	loaded       chan struct{}
}

// Start implements source.Source.
func (o *policyChangeSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.changes.OnReports(func([]engine.Report) {
		first := false
		o.once.Do(func() { first = true; close(o.loaded) })
		// Before the first nobody worked, and all subjects wait in the queue.
		if first || ctx.Err() != nil {
			return
		}
		for _, request := range o.listRequests(ctx) {
			queue.Add(request)
		}
	})
	return nil
}

// WaitForSync implements source.SyncingSource.
func (o *policyChangeSource) WaitForSync(ctx context.Context) error {
	select {
	case <-o.loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the policies: %w", ctx.Err())
	}
}
