// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check checks policies before they are accepted.
//
// [Check] compiles one policy, and returns why it is refused ([Result.Problems]) and what its
// author should know ([Result.Warnings]). Beyond what the engine reports, it finds kinds and
// operations for which no policy is ever evaluated, parameters that the policy's own schema
// does not allow, and fields that input does not have. [InputFields] has the schema of input,
// which the documentation lists too.
//
// A small policy can keep the compiler busy for hours, or take all memory. [Process] therefore
// runs the checks in a child process with limits.
//
// The package never reads or writes the cluster.
package check

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
)

// Result is the result of checking one policy.
type Result struct {
	// Problems are why the policy is refused; none if it is accepted.
	Problems []engine.Problem `json:"problems,omitempty"`
	// Warnings are probable errors, for the author.
	Warnings []engine.Problem `json:"warnings,omitempty"`
	// Reads is the data that the policy reads; nil if it reads none.
	Reads *engine.DataReads `json:"reads,omitempty"`
	// Exhausted reports that the check reached a limit of [Process], so that the policy must
	// not be compiled.
	Exhausted bool `json:"exhausted,omitempty"`
}

// newEngine returns an engine with the built-in libraries, which all checks share.
var newEngine = sync.OnceValues(func() (*engine.Engine, error) {
	return engine.New(engine.Options{Libraries: policies.Libraries()})
})

// Check checks a policy in this process, without limits of time and memory, beside others: the libraries, and, if the policy
// is a library, the policies that import it.
func Check(source engine.Source, others ...engine.Source) (result Result) {
	defer func() {
		if cause := recover(); cause != nil {
			result = Result{Problems: []engine.Problem{{Policy: source.Name, Message: fmt.Sprintf("the check failed: %v", cause)}}}
		}
	}()
	result = compile(source, others)
	result.Problems = append(result.Problems, matchProblems(source)...)
	if len(result.Problems) > 0 {
		return result
	}
	e, err := newEngine()
	if err != nil {
		return Result{Problems: []engine.Problem{{Policy: source.Name, Message: err.Error()}}}
	}
	fields := InputFields()
	result.Problems = e.CheckTypes(source, fields, others...)
	if len(result.Problems) == 0 && !source.IsLibrary() && !engine.Renders(source) {
		result.Warnings = append(result.Warnings, objectWarnings(e, source, fields, others)...)
	}
	return result
}

// compile returns what the engine reports for a policy.
func compile(source engine.Source, others []engine.Source) Result {
	e, err := newEngine()
	if err != nil {
		return Result{Problems: []engine.Problem{{Policy: source.Name, Message: err.Error()}}}
	}
	report := e.Check(source, policies.Names(), others...)
	return Result{Problems: report.Problems, Warnings: report.Warnings, Reads: report.Reads}
}

// objectWarnings returns a warning for each error of the type checker that the object has in
// every kind that the policy matches. It warns only, since a newer Kubernetes may have the
// field.
func objectWarnings(e *engine.Engine, source engine.Source, fields engine.InputTypes, others []engine.Source) []engine.Problem {
	var common []engine.Problem
	kinds := matchedKinds(source.Match)
	for i, kind := range kinds {
		problems := e.CheckTypes(source, withObject(fields, kind), others...)
		// Libraries also serve other kinds.
		problems = slices.DeleteFunc(problems, func(p engine.Problem) bool { return p.Library != "" })
		if i == 0 {
			common = problems
			continue
		}
		common = slices.DeleteFunc(common, func(a engine.Problem) bool {
			return !slices.ContainsFunc(problems, func(b engine.Problem) bool { return a.Line == b.Line && a.Column == b.Column })
		})
	}
	for i := range common {
		common[i].Kind = engine.UnknownObjectField
		common[i].Message += fmt.Sprintf(" (kind %s of Kubernetes %s)", strings.Join(kinds, ", "), kubernetesVersion)
	}
	return common
}

// evaluatedKinds are the kinds of objects for which policies are evaluated, as a match writes
// them. Other workloads are evaluated as the pods that they create.
var evaluatedKinds = map[string]string{"Pod": "Pod", "Job": "Job", "Job.batch": "Job"}

// matchedKinds returns the evaluated kinds that a match selects, without groups.
func matchedKinds(match v1alpha1.PolicyMatch) []string {
	if len(match.Kinds) == 0 {
		return []string{"Pod"}
	}
	var kinds []string
	for _, kind := range match.Kinds {
		if evaluated := evaluatedKinds[kind]; evaluated != "" && !slices.Contains(kinds, evaluated) {
			kinds = append(kinds, evaluated)
		}
	}
	return kinds
}

// matchProblems returns a problem for each kind and operation for which no policy is
// evaluated.
func matchProblems(source engine.Source) []engine.Problem {
	var problems []engine.Problem
	refuse := func(format string, args ...any) {
		problems = append(problems, engine.Problem{Policy: source.Name, Message: fmt.Sprintf(format, args...)})
	}
	for i, kind := range source.Match.Kinds {
		if evaluatedKinds[kind] == "" {
			refuse("spec.match.kinds[%d]: policies are never evaluated for %s, only for Pod and Job.batch; "+
				"other workloads are evaluated as the pods that they create: match Pod", i, kind)
		}
	}
	for i, operation := range source.Match.Operations {
		if operation != v1alpha1.OperationCreate {
			refuse("spec.match.operations[%d]: policies are never evaluated for %s, only for CREATE; "+
				"admission policies of the API server guard later changes", i, operation)
		}
	}
	return problems
}

// related returns the others beside which a source is checked: the libraries, and, for a library, what may import it.
func related(source engine.Source, others []engine.Source) []engine.Source {
	if !engine.MayImport(source) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(others), func(other engine.Source) bool {
		return other.BuiltIn || !other.IsLibrary() && !source.IsLibrary() || !engine.MayImport(other)
	})
}
