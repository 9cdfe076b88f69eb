// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/intent"
)

// answer is what one policy says about one object.
type answer struct {
	// workload is the workload's type; empty where the policy says none, and where
	// it was not asked for it.
	workload              v1alpha1.WorkloadType
	intent                intent.Intent
	deny, violation, warn []intent.Complaint
}

// changes tells whether the policy wants anything of the object.
func (a *answer) changes() bool {
	i := &a.intent
	return i.Defaults != nil || i.Overrides != nil || i.Nodes != nil || i.Append != nil || i.Remove != nil
}

// answer asks a policy about an object, or for its type.
func (p *policy) answer(ctx context.Context, asked question, input ast.Value, cancel topdown.Cancel) (answer, error) {
	values, err := p.query(ctx, p.module.queries[asked], input, cancel)
	if err != nil {
		return answer{}, err
	}
	given := answer{intent: intent.Intent{Policy: p.source.Name}}
	n := &native{left: maxValues}
	for rule := range ruleCount {
		value := values.of(rule)
		if value == nil {
			continue
		}
		if err := given.read(n, rule, value); err != nil {
			return answer{}, misshapen(rule, err)
		}
	}
	return given, nil
}

func (a *answer) read(n *native, rule ruleName, value ast.Value) (err error) {
	name := a.intent.Policy
	switch rule {
	case ruleDefaults:
		a.intent.Defaults, err = n.partial(value)
	case ruleOverrides:
		a.intent.Overrides, err = n.partial(value)
	case ruleNodes:
		a.intent.Nodes, err = n.nodes(value)
	case ruleAppend:
		a.intent.Append, err = n.additions(value)
	case ruleRemove:
		a.intent.Remove, err = n.paths(value)
	case ruleDeny:
		a.deny, err = complaints(name, value)
	case ruleViolation:
		a.violation, err = violations(name, value)
	case ruleWarn:
		a.warn, err = complaints(name, value)
	case ruleType:
		a.workload, err = workloadType(value)
	}
	return err
}

// misshapen says of which rule a value is not what it must be.
func misshapen(rule ruleName, err error) error {
	return fmt.Errorf("%w: %w", ErrShape, under(meanings[rule].name, err))
}

// bindings are what a query gave, by the names of the rules.
type bindings rego.Vars

func (b bindings) of(rule ruleName) ast.Value {
	if term, ok := b[meanings[rule].name].(*ast.Term); ok {
		return term.Value
	}
	return nil
}

// query evaluates a policy's query. Everything that can go wrong in it comes back
// as an error.
func (p *policy) query(ctx context.Context, query *rego.PreparedEvalQuery, input ast.Value, cancel topdown.Cancel) (values bindings, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			values, err = nil, fmt.Errorf("the evaluation failed: %v", fault)
		}
	}()
	results, err := query.Eval(ctx,
		rego.EvalParsedInput(input),
		rego.EvalExternalCancel(cancel),
		rego.EvalInterQueryBuiltinValueCache(patterns),
		rego.EvalMetrics(metrics.NoOp()),
		rego.EvalTransaction(always{}),
	)
	if err != nil {
		return nil, evaluationError(err)
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("the query has %d results", len(results))
	}
	return bindings(results[0].Bindings), nil
}

// evaluationError says where in the policy an evaluation went wrong.
func evaluationError(err error) error {
	if topdown.IsCancel(err) {
		return ErrDeadline
	}
	var fault *topdown.Error
	if !errors.As(err, &fault) {
		return err
	}
	if fault.Location == nil {
		return errors.New(fault.Message)
	}
	return at(fault.Location, "%s", fault.Message)
}
