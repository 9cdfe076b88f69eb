// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge"
)

// policyResult is the result of one policy for one object.
type policyResult struct {
	// workloadType is set by type requests only; empty if the policy defines none.
	workloadType          v1alpha1.WorkloadType
	changes               merge.DesiredChanges
	deny, violation, warn []merge.Finding
}

// hasChanges reports whether the policy changes the object.
func (a *policyResult) hasChanges() bool {
	i := &a.changes
	return i.Defaults != nil || i.Overrides != nil || i.Nodes != nil || i.Append != nil || i.Remove != nil
}

// evaluate runs a policy's rules for a request: all but rendering.
func (p *policy) evaluate(
	ctx context.Context, kind requestKind, input ast.Value, data storage.Transaction, cancel topdown.Cancel,
) (policyResult, error) {
	values, err := p.runQuery(ctx, p.module.queries[kind], input, data, cancel)
	if err != nil {
		return policyResult{}, err
	}
	result := policyResult{changes: merge.DesiredChanges{Policy: p.source.Name}}
	n := &converter{remaining: maxValues}
	for rule := range ruleCount {
		value := values.value(rule)
		if value == nil {
			continue
		}
		if err := result.parseRule(n, rule, value); err != nil {
			return policyResult{}, shapeError(rule, err)
		}
	}
	return result, nil
}

func (a *policyResult) parseRule(n *converter, rule ruleName, value ast.Value) (err error) {
	name := a.changes.Policy
	switch rule {
	case ruleDefaults:
		a.changes.Defaults, err = n.parsePartialObject(value)
	case ruleOverrides:
		a.changes.Overrides, err = n.parsePartialObject(value)
	case ruleNodes:
		a.changes.Nodes, err = n.parseNodeRequirements(value)
	case ruleAppend:
		a.changes.Append, err = n.parseAdditions(value)
	case ruleRemove:
		a.changes.Remove, err = n.parsePaths(value)
	case ruleDeny:
		a.deny, err = parseFindings(name, value)
	case ruleViolation:
		a.violation, err = parseViolations(name, value)
	case ruleWarn:
		a.warn, err = parseFindings(name, value)
	case ruleType:
		a.workloadType, err = parseWorkloadType(value)
	}
	return err
}

// shapeError names the rule whose value has the wrong type.
func shapeError(rule ruleName, err error) error {
	return fmt.Errorf("%w: %w", ErrShape, prefixPath(ruleDefinitions[rule].name, err))
}

// bindings are the values of a query by rule name.
type bindings rego.Vars

func (b bindings) value(rule ruleName) ast.Value {
	if term, ok := b[ruleDefinitions[rule].name].(*ast.Term); ok {
		return term.Value
	}
	return nil
}

// runQuery evaluates a query. Panics become errors.
func (p *policy) runQuery(
	ctx context.Context, query *rego.PreparedEvalQuery, input ast.Value, data storage.Transaction, cancel topdown.Cancel,
) (values bindings, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			values, err = nil, fmt.Errorf("the evaluation panicked: %v", cause)
		}
	}()
	results, err := query.Eval(ctx,
		rego.EvalParsedInput(input),
		rego.EvalExternalCancel(cancel),
		rego.EvalInterQueryBuiltinValueCache(patternCache),
		rego.EvalMetrics(metrics.NoOp()),
		rego.EvalTransaction(data),
	)
	if err != nil {
		return nil, evaluationError(err)
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("the query has %d results", len(results))
	}
	return bindings(results[0].Bindings), nil
}

// evaluationError adds the place in the policy to an error of the evaluation.
func evaluationError(err error) error {
	if topdown.IsCancel(err) {
		return ErrDeadline
	}
	var tooLarge *LimitError
	if errors.As(err, &tooLarge) {
		return tooLarge
	}
	var opaError *topdown.Error
	if !errors.As(err, &opaError) {
		return err
	}
	if opaError.Location == nil {
		return errors.New(opaError.Message)
	}
	return problemAt(opaError.Location, "%s", opaError.Message)
}

// maxValues limits the values in the result of one policy.
const maxValues = 1 << 16

// valueError reports a value that a rule must not have.
type valueError struct {
	// path leads to the value: overrides.spec.containers[0].
	path    string
	message string
}

func (m *valueError) Error() string { return m.path + ": " + m.message }

// prefixPath prepends a step to the path of a valueError.
func prefixPath(step string, err error) error {
	var m *valueError
	if errors.As(err, &m) {
		m.path = step + m.path
	}
	return err
}

func newValueError(format string, args ...any) error {
	return &valueError{message: fmt.Sprintf(format, args...)}
}

// converter converts Rego values to what encoding/json decodes into, with int64 for
// integers.
type converter struct {
	// remaining is the number of values left under maxValues.
	remaining int
}

func (n *converter) value(value ast.Value, depth int) (any, error) {
	if n.remaining--; n.remaining < 0 {
		return nil, newValueError("the result is too large: more than %d values", maxValues)
	}
	if depth > document.MaxDepth {
		return nil, newValueError("the value nests more than %d deep", document.MaxDepth)
	}
	switch value := value.(type) {
	case ast.Null:
		return nil, nil
	case ast.Boolean:
		return bool(value), nil
	case ast.String:
		return string(value), nil
	case ast.Number:
		return convertNumber(string(value))
	case *ast.Array:
		return n.array(value, depth)
	case ast.Object:
		return n.object(value, depth)
	case ast.Set:
		return nil, newValueError("a set has no JSON form: write an array, [x | some x in …]")
	}
	return nil, newValueError("%s has no JSON form", ast.ValueName(value))
}

func (n *converter) array(array *ast.Array, depth int) ([]any, error) {
	list := make([]any, array.Len())
	for i := range list {
		element, err := n.value(array.Elem(i).Value, depth+1)
		if err != nil {
			return nil, prefixPath(fmt.Sprintf("[%d]", i), err)
		}
		list[i] = element
	}
	return list, nil
}

func (n *converter) object(object ast.Object, depth int) (map[string]any, error) {
	fields := make(map[string]any, object.Len())
	// In the order of the keys, so that the same error is reported each time.
	keys := object.KeysIterator()
	for key, more := keys.Next(); more; key, more = keys.Next() {
		name, ok := key.Value.(ast.String)
		if !ok {
			return nil, newValueError("the key %s is not a string", key)
		}
		value, err := n.value(object.Get(key).Value, depth+1)
		if err != nil {
			return nil, prefixPath("."+string(name), err)
		}
		fields[string(name)] = value
	}
	return fields, nil
}

// convertNumber returns an int64 for an integral number, otherwise a float64. It rounds
// away floating point noise, but never rounds an integer.
func convertNumber(text string) (any, error) {
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return whole, nil
	}
	float, err := document.ParseFinite(text)
	if err != nil {
		return nil, newValueError("%v", err)
	}
	if float != math.Trunc(float) {
		return float, nil
	}
	if math.Abs(float) < 1<<53 {
		return int64(float), nil
	}
	if exact, ok := new(big.Rat).SetString(text); ok && exact.IsInt() && exact.Num().IsInt64() {
		return exact.Num().Int64(), nil
	}
	return nil, newValueError("the number %s does not fit in 64 bits", text)
}
