// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/api/v1alpha1"
)

// Object is one whole object that a policy renders.
type Object struct {
	// Policy is the policy's name.
	Policy string
	// Value is the object: JSON, with int64 for integers. It has an apiVersion, a
	// kind and a name.
	Value map[string]any
}

// Rendering is what all policies render for one project, department or node
// pool. Its lists are sorted by the policies' names, and within a policy in the
// order of Rego's sets.
type Rendering struct {
	// Objects are the objects of Deny and Warn policies.
	Objects []Object
	// Requires are what these policies need.
	Requires []Requirement
	// DryRun are the objects that DryRun policies would render.
	DryRun []Object
	// Failures are the policies that could not be asked: what they rendered before
	// is not known to be obsolete, and must stay.
	Failures []Failure
	// Evaluations are all policies that were asked.
	Evaluations []Evaluation
}

// rendered is what one policy renders.
type rendered struct {
	objects  []Object
	requires []Requirement
}

// EvaluateObjects asks every policy for the objects of a project, a department
// or a node pool, which is the input's object. Policies are matched by their
// departments and projects alone: kinds and operations speak of admission.
func (s *Set) EvaluateObjects(ctx context.Context, in Input) (Rendering, error) {
	if in.object().Absent() {
		return Rendering{}, ErrNoObject
	}
	matched := s.rendering.matching(Subject{Department: in.Subject.Department, Project: in.Subject.Project})
	policies := make([]*policy, len(matched))
	for i, m := range matched {
		policies[i] = m.policy
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.Request)
	defer cancel()
	b := in.bind()
	replies := inTurn(ctx, s.options.Limits.Evaluation, policies,
		func(ctx context.Context, p *policy, cancel topdown.Cancel) (rendered, error) {
			return p.render(ctx, b.with(p.parameters), cancel)
		})
	var rendering Rendering
	for i, p := range policies {
		rendering.take(p, &replies[i])
	}
	s.report(rendering.Evaluations)
	return rendering, nil
}

func (r *Rendering) take(p *policy, reply *reply[rendered]) {
	r.Evaluations = append(r.Evaluations, Evaluation{
		Policy: p.source.Name, Enforcement: p.enforcement(), Rendering: true,
		Took: reply.took, Verdict: verdict(reply.err, nil, nil),
	})
	if reply.err != nil {
		r.Failures = append(r.Failures, Failure{Policy: p.source.Name, Enforcement: p.enforcement(), Err: reply.err})
		return
	}
	if p.enforcement() == v1alpha1.EnforcementDryRun {
		r.DryRun = append(r.DryRun, reply.value.objects...)
		return
	}
	r.Objects = append(r.Objects, reply.value.objects...)
	r.Requires = append(r.Requires, reply.value.requires...)
}

// render asks a policy for its objects and what they require.
func (p *policy) render(ctx context.Context, input ast.Value, cancel topdown.Cancel) (rendered, error) {
	values, err := p.query(ctx, p.module.queries[forObjects], input, cancel)
	if err != nil {
		return rendered{}, err
	}
	var given rendered
	n := &native{left: maxValues}
	if value := values.of(ruleObjects); value != nil {
		if given.objects, err = n.objects(p.source.Name, value); err != nil {
			return rendered{}, misshapen(ruleObjects, err)
		}
	}
	if value := values.of(ruleRequires); value != nil {
		if given.requires, err = n.requirements(p.source.Name, value); err != nil {
			return rendered{}, misshapen(ruleRequires, err)
		}
	}
	return given, nil
}

// objects reads the value of objects: whole objects.
func (n *native) objects(policy string, value ast.Value) ([]Object, error) {
	elements, err := elementsOf(value)
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, element := range elements {
		object, ok := element.Value.(ast.Object)
		if !ok {
			return nil, unfit("must be whole objects, and one is %s", ast.ValueName(element.Value))
		}
		whole, err := n.object(object, 0)
		if err != nil {
			return nil, err
		}
		if err := wholeObject(whole); err != nil {
			return nil, err
		}
		objects = append(objects, Object{Policy: policy, Value: whole})
	}
	return objects, nil
}

func wholeObject(object map[string]any) error {
	metadata, _ := object["metadata"].(map[string]any)
	for _, value := range []any{object["apiVersion"], object["kind"], metadata["name"]} {
		if text, ok := value.(string); !ok || text == "" {
			return unfit("an object needs apiVersion, kind and metadata.name, and one has %v, %v and %v",
				object["apiVersion"], object["kind"], metadata["name"])
		}
	}
	return nil
}
