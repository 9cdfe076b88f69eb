// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/api/v1alpha1"
)

// Object is one complete object that a policy renders.
type Object struct {
	// Policy is the policy's name.
	Policy string
	// Value is the object as JSON with int64 for integers. It has an apiVersion, a kind
	// and a name.
	Value map[string]any
}

// Rendering is what all policies render for one project, department or node pool. Its
// lists are sorted by policy name, and within a policy by the order of Rego's sets.
type Rendering struct {
	// Objects are the objects of Deny and Warn policies.
	Objects []Object
	// Requires are the requirements of these policies.
	Requires []Requirement
	// DryRun are the objects that DryRun policies would render.
	DryRun []Object
	// Failures are the policies that could not be evaluated. Their earlier objects may
	// still be needed and must stay.
	Failures    []Failure
	Evaluations []Evaluation
}

type policyRendering struct {
	objects  []Object
	requires []Requirement
}

// RenderObjects renders the objects of a project, department or node pool, which is the
// input's object. It matches policies by department and project only: kinds and
// operations are about admission.
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
	responses := evaluateInOrder(ctx, s.options.Limits.Evaluation, policies,
		func(ctx context.Context, p *policy, cancel topdown.Cancel) (policyRendering, error) {
			return p.render(ctx, b.withParameters(p.parameters), cancel)
		})
	var rendering Rendering
	for i, p := range policies {
		rendering.add(p, &responses[i])
	}
	s.observe(rendering.Evaluations)
	return rendering, nil
}

func (r *Rendering) add(p *policy, response *response[policyRendering]) {
	r.Evaluations = append(r.Evaluations, Evaluation{
		Policy: p.source.Name, Enforcement: p.enforcement(), Rendering: true,
		Duration: response.duration, Result: resultOf(response.err, nil, nil),
	})
	if response.err != nil {
		r.Failures = append(r.Failures, Failure{Policy: p.source.Name, Enforcement: p.enforcement(), Err: response.err})
		return
	}
	if p.enforcement() == v1alpha1.EnforcementDryRun {
		r.DryRun = append(r.DryRun, response.value.objects...)
		return
	}
	r.Objects = append(r.Objects, response.value.objects...)
	r.Requires = append(r.Requires, response.value.requires...)
}

// render runs the rules objects and requires.
func (p *policy) render(ctx context.Context, input ast.Value, cancel topdown.Cancel) (policyRendering, error) {
	if p.unusable != nil {
		return policyRendering{}, p.unusable
	}
	values, err := p.runQuery(ctx, p.module.queries[renderRequest], input, noData, cancel)
	if err != nil {
		return policyRendering{}, err
	}
	var result policyRendering
	n := &converter{remaining: maxValues}
	if value := values.value(ruleObjects); value != nil {
		if result.objects, err = n.parseObjects(p.source.Name, value); err != nil {
			return policyRendering{}, shapeError(ruleObjects, err)
		}
	}
	if value := values.value(ruleRequires); value != nil {
		if result.requires, err = n.parseRequirements(p.source.Name, value); err != nil {
			return policyRendering{}, shapeError(ruleRequires, err)
		}
	}
	return result, nil
}

// parseObjects parses the value of objects.
func (n *converter) parseObjects(policy string, value ast.Value) ([]Object, error) {
	elements, err := setElements(value)
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, element := range elements {
		object, ok := element.Value.(ast.Object)
		if !ok {
			return nil, newValueError("must be complete objects, and one is %s", ast.ValueName(element.Value))
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
