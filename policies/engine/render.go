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

// policyRendering is what one policy renders.
type policyRendering struct {
	objects  []Object
	requires []Requirement
}

// RenderObjects asks every policy for the objects of a project, a department
// or a node pool, which is the input's object. Policies are matched by their
// departments and projects alone: kinds and operations speak of admission.
func (s *Set) RenderObjects(ctx context.Context, in Input) (Rendering, error) {
	if in.object().IsAbsent() {
		return Rendering{}, ErrNoObject
	}
	matched := s.rendering.match(Subject{Department: in.Subject.Department, Project: in.Subject.Project})
	policies := make([]*policy, len(matched))
	for i, m := range matched {
		policies[i] = m.policy
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.Request)
	defer cancel()
	b := in.bind()
	replies := evaluateInOrder(ctx, s.options.Limits.Evaluation, policies,
		func(ctx context.Context, p *policy, cancel topdown.Cancel) (policyRendering, error) {
			return p.render(ctx, b.withParameters(p.parameters), cancel)
		})
	var rendering Rendering
	for i, p := range policies {
		rendering.add(p, &replies[i])
	}
	s.observe(rendering.Evaluations)
	return rendering, nil
}

func (r *Rendering) add(p *policy, reply *response[policyRendering]) {
	r.Evaluations = append(r.Evaluations, Evaluation{
		Policy: p.source.Name, Enforcement: p.enforcement(), Rendering: true,
		Duration: reply.duration, Result: resultOf(reply.err, nil, nil),
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
func (p *policy) render(ctx context.Context, input ast.Value, cancel topdown.Cancel) (policyRendering, error) {
	values, err := p.runQuery(ctx, p.module.queries[renderRequest], input, cancel)
	if err != nil {
		return policyRendering{}, err
	}
	var given policyRendering
	n := &converter{remaining: maxValues}
	if value := values.value(ruleObjects); value != nil {
		if given.objects, err = n.parseObjects(p.source.Name, value); err != nil {
			return policyRendering{}, shapeError(ruleObjects, err)
		}
	}
	if value := values.value(ruleRequires); value != nil {
		if given.requires, err = n.parseRequirements(p.source.Name, value); err != nil {
			return policyRendering{}, shapeError(ruleRequires, err)
		}
	}
	return given, nil
}

// parseObjects reads the value of objects: whole objects.
func (n *converter) parseObjects(policy string, value ast.Value) ([]Object, error) {
	elements, err := setElements(value)
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, element := range elements {
		object, ok := element.Value.(ast.Object)
		if !ok {
			return nil, newValueError("must be whole objects, and one is %s", ast.ValueName(element.Value))
		}
		whole, err := n.object(object, 0)
		if err != nil {
			return nil, err
		}
		if err := validateObject(whole); err != nil {
			return nil, err
		}
		objects = append(objects, Object{Policy: policy, Value: whole})
	}
	return objects, nil
}

func validateObject(object map[string]any) error {
	metadata, _ := object["metadata"].(map[string]any)
	for _, value := range []any{object["apiVersion"], object["kind"], metadata["name"]} {
		if text, ok := value.(string); !ok || text == "" {
			return newValueError("an object needs apiVersion, kind and metadata.name, and one has %v, %v and %v",
				object["apiVersion"], object["kind"], metadata["name"])
		}
	}
	return nil
}
