// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
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

// RunUnitTests runs the rules test_... of the files *_test.rego, with the policies and Sluice's libraries. If policies have the
// same package, each file is run with the policy beside it and those of other packages. The error is of the modules: no
// further test ran.
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
	var outcomes []Outcome
	for _, group := range f.testGroups(modules) {
		of, err := runGroup(ctx, group, store, coverage)
		if err != nil {
			return nil, nil, err
		}
		outcomes = append(outcomes, of...)
	}
	slices.SortStableFunc(outcomes, func(a, b Outcome) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Name, b.Name)) })
	return outcomes, f.coverage(coverage, modules), nil
}

// runGroup runs the unit tests of modules that are compiled together.
func runGroup(ctx context.Context, modules map[string]*ast.Module, store storage.Store, coverage *cover.Cover) ([]Outcome, error) {
	runner := tester.NewRunner().
		SetStore(store).
		SetCompiler(ast.NewCompiler().WithCapabilities(engine.UnitTestCapabilities()).WithEnablePrintStatements(true)).
		SetModules(modules).
		SetCoverageQueryTracer(coverage).
		RaiseBuiltinErrors(true)
	results, err := runner.RunTests(ctx, nil)
	if err != nil {
		return nil, err
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
	return outcomes, nil
}

// testGroups returns the modules that are compiled together: all of them, unless policies have the same package. Then each file of
// unit tests has a group of its own, without the policies whose package is that of the policy beside it.
func (f *Folder) testGroups(modules map[string]*ast.Module) []map[string]*ast.Module {
	byPackage := make(map[string][]string) // the policies' modules
	for i := range f.Policies {
		file := f.moduleFile(f.Policies[i].Name)
		name := modules[file].Package.Path.String()
		byPackage[name] = append(byPackage[name], file)
	}
	clash := false
	for _, files := range byPackage {
		clash = clash || len(files) > 1
	}
	if !clash {
		return []map[string]*ast.Module{modules}
	}
	var groups []map[string]*ast.Module
	for _, test := range sortedKeys(f.UnitTests) {
		group := maps.Clone(modules)
		maps.DeleteFunc(group, func(file string, _ *ast.Module) bool {
			_, isTest := f.UnitTests[file]
			return isTest && file != test
		})
		for _, files := range byPackage {
			own := slices.IndexFunc(files, func(file string) bool { return f.isBeside(file, test) })
			for i, file := range files {
				if own >= 0 && i != own {
					delete(group, file)
				}
			}
		}
		groups = append(groups, group)
	}
	return groups
}

// isBeside reports whether a file of unit tests has the name of the file with a policy's Rego.
func (f *Folder) isBeside(module, test string) bool {
	file, _, _ := strings.Cut(module, ":")
	return strings.TrimSuffix(file, path.Ext(file)) == strings.TrimSuffix(test, unitTestSuffix)
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
