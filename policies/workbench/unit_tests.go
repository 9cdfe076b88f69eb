// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/policies"
	"sluice.dev/policies/engine"
)

// Coverage is the part of a policy's lines that the unit tests evaluated.
type Coverage struct {
	// Policy is the policy's name.
	Policy string
	// Percent is from 0 to 100; 100 for a policy without expressions.
	Percent float64
	// Missing are the first lines of what was not evaluated.
	Missing []int
}

// RunUnitTests runs the rules test_... of the files *_test.rego, with the policies and Sluice's libraries. The error is of
// the modules: no test ran.
func (f *Folder) RunUnitTests(ctx context.Context) ([]Outcome, []Coverage, error) {
	if len(f.UnitTests) == 0 {
		return nil, nil, nil
	}
	modules, err := f.modules()
	if err != nil {
		return nil, nil, err
	}
	store, err := f.dataStore()
	if err != nil {
		return nil, nil, err
	}
	coverage := cover.New()
	runner := tester.NewRunner().
		SetStore(store).
		SetCompiler(ast.NewCompiler().WithCapabilities(engine.UnitTestCapabilities()).WithEnablePrintStatements(true)).
		SetModules(modules).
		SetCoverageQueryTracer(coverage).
		RaiseBuiltinErrors(true)
	results, err := runner.RunTests(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	var outcomes []Outcome
	for result := range results {
		outcome := Outcome{File: result.Location.File, Name: result.Name, Skipped: result.Skip, Duration: result.Duration}
		switch {
		case result.Error != nil:
			outcome.Failures = []Failure{{Message: result.Error.Error(), Diff: string(result.Output)}}
		case !result.Pass() && !result.Skip:
			outcome.Failures = []Failure{{Message: fmt.Sprintf("line %d: the rule is not true", result.Location.Row), Diff: string(result.Output)}}
		}
		outcomes = append(outcomes, outcome)
	}
	slices.SortStableFunc(outcomes, func(a, b Outcome) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Name, b.Name)) })
	return outcomes, f.coverage(coverage, modules), nil
}

var _ topdown.QueryTracer = (*cover.Cover)(nil)

// modules parses the policies, the unit tests and the libraries, by file.
func (f *Folder) modules() (map[string]*ast.Module, error) {
	modules := make(map[string]*ast.Module)
	var faults []error
	parse := func(file, text string) {
		module, err := ast.ParseModuleWithOpts(file, text, ast.ParserOptions{RegoVersion: ast.RegoV1})
		if err != nil {
			// A template of Gatekeeper is in v0.
			if old, oldErr := ast.ParseModuleWithOpts(file, text, ast.ParserOptions{RegoVersion: ast.RegoV0}); oldErr == nil {
				module, err = old, nil
			}
		}
		if err != nil {
			faults = append(faults, err)
			return
		}
		modules[file] = module
	}
	for _, library := range policies.Libraries() {
		parse("sluice:"+library.Name, library.Rego)
	}
	for i := range f.Policies {
		parse(f.moduleFile(f.Policies[i].Name), f.Policies[i].Spec.Rego)
	}
	for _, file := range sortedKeys(f.UnitTests) {
		parse(file, f.UnitTests[file])
	}
	return modules, errors.Join(faults...)
}

// moduleFile returns the name of a policy's module in errors. Several policies may be in one file.
func (f *Folder) moduleFile(policy string) string { return f.files[policy] + ":" + policy }

func (f *Folder) coverage(tracer *cover.Cover, modules map[string]*ast.Module) []Coverage {
	report := tracer.Report(modules)
	var all []Coverage
	for i := range f.Policies {
		of := Coverage{Policy: f.Policies[i].Name, Percent: 100}
		if file := report.Files[f.moduleFile(of.Policy)]; file != nil {
			of.Percent = file.Coverage
			for _, missing := range file.NotCovered {
				of.Missing = append(of.Missing, missing.Start.Row)
			}
			of.Missing = slices.Compact(of.Missing)
		}
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b Coverage) int { return cmp.Compare(a.Policy, b.Policy) })
	return all
}
