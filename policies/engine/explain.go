// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// explainTimeout limits the evaluation of one policy with all its events.
const explainTimeout = 10 * time.Second

// RuleTrace is what one rule of a policy did for an object.
type RuleTrace struct {
	// Rule is the rule's name, such as deny, and Line its first line in the policy.
	Rule string
	Line int
	// Fired reports whether the rule had a value.
	Fired bool
	// UndefinedLine and Undefined are the line and the text of the expression that was undefined or false last, where the rule did not
	// fire. The line is 0 if the rule has no body.
	UndefinedLine int
	Undefined     string
}

// Explain evaluates one policy of the set for an object, whether it matches it or not, and returns what each of the rules that
// Sluice knows did, in the order of their lines. It takes several times as long as an evaluation.
func (s *Set) Explain(ctx context.Context, in Input, name string) ([]RuleTrace, error) {
	at := slices.IndexFunc(s.members, func(m *member) bool { return m.source.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("there is no policy %q", name)
	}
	policy := s.members[at].policy
	if policy.unusable != nil {
		return nil, policy.unusable
	}
	query := policy.module.queries[admissionRequest]
	if query == nil {
		return nil, nil
	}
	view := s.view(policy, admissionRequest)
	if view != nil && view.err != nil {
		return nil, view.err
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	tracer := topdown.NewBufferTracer()
	_, err := query.Eval(ctx,
		rego.EvalParsedInput(in.bind().withParameters(policy.parameters)),
		rego.EvalQueryTracer(tracer),
		// Without the index and early exits each rule is entered.
		rego.EvalRuleIndexing(false), rego.EvalEarlyExit(false),
		rego.EvalMetrics(metrics.NoOp()), rego.EvalTransaction(view.transaction(in.namespace())),
	)
	if err != nil {
		return nil, evaluationError(err)
	}
	return traceRules(*tracer), nil
}

// traceRules returns the traces of the policy's rules from the events of an evaluation.
func traceRules(events []*topdown.Event) []RuleTrace {
	byRule := make(map[*ast.Rule]*RuleTrace)
	entered := make(map[uint64]*ast.Rule) // the rule that a query evaluates
	for _, event := range events {
		if rule, ok := event.Node.(*ast.Rule); ok {
			if !isEntryPoint(rule) {
				continue
			}
			entered[event.QueryID] = rule
			if byRule[rule] == nil {
				byRule[rule] = &RuleTrace{Rule: topLevelName(rule), Line: rule.Location.Row}
			}
			if event.Op == topdown.ExitOp {
				byRule[rule].Fired = true
			}
			continue
		}
		expression, ok := event.Node.(*ast.Expr)
		rule := entered[event.QueryID]
		if !ok || event.Op != topdown.FailOp || rule == nil || expression.Location == nil {
			continue
		}
		// The expression that failed furthest down decided.
		if trace := byRule[rule]; expression.Location.Row >= trace.UndefinedLine {
			trace.UndefinedLine, trace.Undefined = expression.Location.Row, expressionText(expression)
		}
	}
	traces := make([]RuleTrace, 0, len(byRule))
	for _, trace := range byRule {
		if trace.Fired {
			trace.UndefinedLine, trace.Undefined = 0, ""
		}
		traces = append(traces, *trace)
	}
	slices.SortFunc(traces, func(a, b RuleTrace) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule)) })
	return traces
}

// isEntryPoint reports whether a rule is in the policy itself, and one that Sluice evaluates.
func isEntryPoint(rule *ast.Rule) bool {
	return rule.Location != nil && rule.Location.File == policyFile &&
		slices.ContainsFunc(ruleDefinitions[:], func(d ruleDefinition) bool { return d.name == topLevelName(rule) })
}

// expressionText returns the source of an expression on one line.
func expressionText(expression *ast.Expr) string {
	text := string(expression.Location.Text)
	if text == "" {
		text = expression.String()
	}
	return strings.Join(strings.Fields(text), " ")
}
