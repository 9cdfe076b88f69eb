// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// exampleTime is the time of all evaluations: templates cannot read a clock.
var exampleTime = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// compareTimeout limits the evaluation of a template, whose author may be anyone.
const compareTimeout = 10 * time.Second

// compareWithTemplate evaluates a template's own modules with OPA, and the policy and its libraries with the engine, for the same reviews. It
// returns the first difference of their messages; empty if there is none.
func compareWithTemplate(
	ctx context.Context, modules []string, version ast.RegoVersion, policy *v1alpha1.Policy, libraries []engine.Source,
	objects []map[string]any,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	original, err := prepareTemplate(ctx, modules, version)
	if err != nil {
		return "Gatekeeper would not compile the template: " + err.Error(), nil
	}
	source := engine.FromPolicy(policy)
	source.Enforcement, source.Match.Kinds = v1alpha1.EnforcementDeny, []string{"Pod", kindJob}
	set, reports, err := engine.Compile(append(libraries, source), engine.Options{
		Libraries: policies.Libraries(), Limits: engine.Limits{Evaluation: compareTimeout, Request: compareTimeout}, CacheEntries: -1,
	})
	if err != nil {
		return "", err
	}
	for i := range reports {
		if problems := reports[i].Problems; len(problems) > 0 {
			return problems[0].Error(), nil
		}
	}
	var parameters any = map[string]any{}
	if p := policy.Spec.Parameters; p != nil {
		if err := json.Unmarshal(p.Raw, &parameters); err != nil {
			return "", err
		}
	}
	for _, object := range objects {
		review := reviewOf(object)
		expected, err := templateMessages(ctx, original, review, parameters)
		if err != nil {
			return "Gatekeeper would not evaluate the template: " + err.Error(), nil
		}
		found, err := policyMessages(ctx, set, review)
		if err != nil {
			return fmt.Sprintf("the template ignores an error that a policy must not: %v", err), nil
		}
		if !slices.Equal(expected, found) {
			return fmt.Sprintf("for an example pod the template reports %q, and the policy %q", expected, found), nil
		}
	}
	return "", nil
}

// reviewOf returns the admission request that creates an object.
func reviewOf(created map[string]any) map[string]any {
	kind := map[string]any{"group": "", "version": "v1", "kind": "Pod"}
	if text(created["kind"]) == "Job" {
		kind = map[string]any{"group": "batch", "version": "v1", "kind": "Job"}
	}
	return map[string]any{
		"uid": "00000000-0000-4000-8000-000000000000", "operation": "CREATE", "namespace": exampleNamespace,
		"name": text(at(created, "metadata", "name")), "kind": kind, "object": created,
		"userInfo": map[string]any{"username": "anna", "groups": []any{"system:authenticated"}},
	}
}

// prepareTemplate compiles the modules of a template as Gatekeeper does.
func prepareTemplate(ctx context.Context, modules []string, version ast.RegoVersion) (*rego.PreparedEvalQuery, error) {
	main, err := ast.ParseModuleWithOpts("template", modules[0], ast.ParserOptions{RegoVersion: version})
	if err != nil {
		return nil, err
	}
	options := []func(*rego.Rego){
		rego.SetRegoVersion(version), rego.Capabilities(engine.UnitTestCapabilities()),
		rego.Query(main.Package.Path.Append(ast.StringTerm("violation")).String()),
	}
	for i, module := range modules {
		options = append(options, rego.Module(fmt.Sprintf("module-%d", i), module))
	}
	prepared, err := rego.New(options...).PrepareForEval(ctx)
	return &prepared, err
}

// templateMessages returns the sorted messages of a template.
func templateMessages(ctx context.Context, template *rego.PreparedEvalQuery, review, parameters any) ([]string, error) {
	results, err := template.Eval(ctx, rego.EvalInput(map[string]any{"review": review, "parameters": parameters}))
	if err != nil {
		return nil, err
	}
	var messages []string
	for _, result := range results {
		for _, expression := range result.Expressions {
			for _, violation := range list(expression.Value) {
				messages = append(messages, text(at(violation, "msg")))
			}
		}
	}
	slices.Sort(messages)
	return slices.Compact(messages), nil
}

// policyMessages returns the sorted messages of the only policy of a set.
func policyMessages(ctx context.Context, set *engine.Set, review map[string]any) ([]string, error) {
	raw, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	decoded, err := document.Decode(raw)
	if err != nil {
		return nil, err
	}
	kind := object(review["kind"])
	outcome, err := set.Evaluate(ctx, engine.Input{
		Subject: engine.Subject{Operation: v1alpha1.OperationCreate, Group: text(kind["group"]), Kind: text(kind["kind"])},
		Review:  decoded, Now: exampleTime,
	})
	if err != nil {
		return nil, err
	}
	if len(outcome.Failures) > 0 {
		return nil, outcome.Failures[0].Err
	}
	var messages []string
	for _, denial := range outcome.Denials {
		messages = append(messages, denial.Message)
	}
	slices.Sort(messages)
	return slices.Compact(messages), nil
}

// schemaProblem returns why a policy cannot have its schema of parameters; empty if it can.
func schemaProblem(policy *v1alpha1.Policy) string {
	probe := policy.DeepCopy()
	probe.Name, probe.Spec.Rego = "probe", "package probe\n"
	_, reports, err := engine.Compile([]engine.Source{engine.FromPolicy(probe)}, engine.Options{})
	if err != nil {
		return err.Error()
	}
	if problems := reports[0].Problems; len(problems) > 0 {
		return problems[0].Message
	}
	return ""
}
