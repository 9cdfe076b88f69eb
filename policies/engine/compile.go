// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
)

// module is a policy's compiled Rego, without its match and parameters.
type module struct {
	// rules are the known rules that it defines.
	rules ruleSet
	// momentary are those of them that may read the time or the present use.
	momentary ruleSet
	// reads is what the rules that answer each question read of input, by the names
	// that are written out.
	reads [questionCount]footprint
	// pieces are the parts of input that an answer to each question follows from;
	// nil where answers cannot be remembered by them.
	pieces [questionCount][]piece
	// warnings are what its author should look at.
	warnings []Problem
	// queries ask each question; nil where the module has no rule that answers it.
	queries [questionCount]*rego.PreparedEvalQuery
}

// compiler compiles modules, each by itself: one big compiler would take time in
// the square of their number, and let them see each other.
type compiler struct {
	libraries map[string]*ast.Module
}

// newCompiler returns a compiler with libraries, which must compile.
func newCompiler(libraries []Library) (*compiler, []Problem) {
	modules, problems := parseLibraries(libraries)
	if len(problems) > 0 {
		return nil, problems
	}
	c := &compiler{libraries: modules}
	if compiled, problems := c.run(modules, true); len(problems) > 0 {
		return nil, problems
	} else if problems := checkReads(compiled, nil, 0); len(problems) > 0 {
		return nil, inOrder(problems)
	}
	return c, nil
}

// compile compiles one policy's text. It returns nil and every problem found
// where there is one.
func (c *compiler) compile(text string) (compiled *module, problems []Problem) {
	// Policies are written by hand and compiled by code that is not ours: whatever
	// a text does to it must not end the process.
	defer func() {
		if fault := recover(); fault != nil {
			compiled, problems = nil, []Problem{{Message: fmt.Sprintf("the compiler failed: %v", fault)}}
		}
		if compiled == nil && len(problems) == 0 {
			problems = []Problem{{Message: "the module does not compile"}}
		}
	}()
	p, problems := parse(text)
	if p.module == nil {
		return nil, inOrder(problems)
	}
	opa, wrong := c.run(c.withLibraries(p.module), !p.gatekeeper)
	problems = append(problems, wrong...)
	if opa != nil {
		problems = append(problems, checkReads(opa, p.module.Package.Path, p.rules)...)
	}
	if len(problems) > 0 || opa == nil {
		return nil, inOrder(problems)
	}
	compiled = &module{rules: p.rules, warnings: misnamed(p.module)}
	if p.rules == 0 {
		compiled.warnings = append(compiled.warnings, at(p.module.Package.Loc(), "the policy defines no rule with a meaning, and does nothing"))
	}
	compiled.warnings = inOrder(compiled.warnings)
	compiled.momentary = momentaryOf(opa, p.module.Package.Path, p.rules)
	for asked := range questionCount {
		query, err := prepare(opa, p.module.Package.Path, p.rules, asked)
		if err != nil {
			return nil, fromOPA(err)
		}
		compiled.queries[asked] = query
		compiled.reads[asked] = footprintOf(opa, p.module.Package.Path, p.rules, asked)
		pieces, ok := piecesOf(opa, p.module.Package.Path, p.rules, asked, compiled.reads[asked])
		// Answers that depend on the moment are not remembered.
		if moment := asked == aboutObject && compiled.momentary != 0; ok && !moment && len(pieces) <= maxPieces {
			compiled.pieces[asked] = slices.Clip(append([]piece{}, pieces...))
		}
	}
	return compiled, nil
}

// withLibraries returns the modules to compile: the policy's, and the libraries
// where it speaks of them.
func (c *compiler) withLibraries(own *ast.Module) map[string]*ast.Module {
	modules := map[string]*ast.Module{ownFile: own}
	needed := false
	ast.WalkRefs(own, func(ref ast.Ref) bool {
		needed = needed || isLibrary(ref)
		return needed
	})
	if needed {
		maps.Copy(modules, c.libraries)
	}
	return modules
}

func (c *compiler) run(modules map[string]*ast.Module, strict bool) (*ast.Compiler, []Problem) {
	with := capabilities
	if !strict {
		with = capabilitiesV0
	}
	opa := ast.NewCompiler().
		WithCapabilities(with).
		WithDefaultRegoVersion(ast.RegoV1).
		WithStrict(strict).
		WithEnablePrintStatements(false).
		SetErrorLimit(maxProblems)
	opa.Compile(modules)
	if opa.Failed() {
		return nil, fromOPA(opa.Errors)
	}
	return opa, nil
}

// prepare makes one query of all known rules that answer a question. Each is bound to its
// name; a rule that has one value is asked for in a comprehension, which is
// there even where the rule is undefined.
func prepare(opa *ast.Compiler, pkg ast.Ref, rules ruleSet, asked question) (*rego.PreparedEvalQuery, error) {
	var body ast.Body
	for rule := range ruleCount {
		if !rules.has(rule) || meanings[rule].asked != asked {
			continue
		}
		value := ast.NewTerm(pkg.Append(ast.StringTerm(meanings[rule].name)))
		if !meanings[rule].set {
			element := ast.VarTerm("value")
			value = ast.ArrayComprehensionTerm(element, ast.NewBody(ast.Equality.Expr(element, value)))
		}
		binding := ast.Equality.Expr(ast.VarTerm(meanings[rule].name), value)
		// Only its variable is asked for, not the expression.
		binding.Generated = true
		body.Append(binding)
	}
	if body == nil {
		return nil, nil
	}
	query, err := rego.New(
		rego.Compiler(opa),
		rego.ParsedQuery(body),
		rego.Store(nothing{}),
		rego.StrictBuiltinErrors(true),
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	).PrepareForEval(context.Background())
	if err != nil {
		return nil, err
	}
	return &query, nil
}
