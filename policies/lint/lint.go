// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lint finds probable errors in a folder of policies before they are applied.
//
// [Run] returns what the webhook would refuse and warn of, and what it cannot know: rules that never fire, parameters that
// no rule reads, comparisons that mean something else, and style. Each [Finding] has a stable code ([Codes]) and a place in
// a file of the folder. A comment `# sluice:ignore SL104 reason` on its line, or above it, removes a finding.
//
// The package needs no cluster and writes no file: [Format] changes the folder in memory.
package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
	"sluice.dev/policies/workbench"
)

// Options are how Run checks a policy.
type Options struct {
	// Check checks a policy as the webhook does; see [check.Process.Check]. By default that is [check.Check], which has no
	// limits of time and memory, and finds no conflicts.
	Check workbench.Checker
}

// linter collects findings.
type linter struct {
	folder   *workbench.Folder
	check    workbench.Checker
	findings []Finding
}

// Run returns the findings of a folder, which may have faults, sorted by place. An error is not the folder's fault.
func Run(ctx context.Context, folder *workbench.Folder, options Options) ([]Finding, error) {
	l := &linter{folder: folder, check: options.Check}
	if l.check == nil {
		l.check = func(_ context.Context, source engine.Source, environment check.Environment) (check.Result, error) {
			return check.Check(source, environment.Policies...), nil
		}
	}
	for _, fault := range folder.Faults() {
		l.add(unreadable, "", fault.Place, "%v", fault.Err)
	}
	for _, file := range folder.UnusedRego() {
		stem := strings.TrimSuffix(file, path.Ext(file))
		l.add(unusedFile, "", workbench.Place{File: file, Line: firstCodeLine(folder.Text(file)), Column: 1},
			"nothing evaluates the file: the Rego of a policy is in spec.rego or, without that, in the file beside it, here %s.yaml; "+
				"unit tests are in files *_test.rego", stem)
	}
	l.lintUnitTests()
	l.lintCases()
	for i := range folder.Policies {
		if err := l.lintPolicy(ctx, &folder.Policies[i]); err != nil {
			return nil, err
		}
	}
	l.applyIgnores()
	return sortFindings(l.findings), nil
}

// firstCodeLine returns the first line that is neither empty nor a comment.
func firstCodeLine(text string) int {
	number := 1
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return number
		}
		number++
	}
	return 1
}

func (l *linter) add(code, policy string, place workbench.Place, format string, args ...any) {
	known, _ := lookUpCode(code)
	l.findings = append(l.findings, Finding{
		Code: code, Severity: known.Severity, Policy: policy, Place: place, Message: fmt.Sprintf(format, args...),
	})
}

// policyLinter finds what is wrong with one policy.
type policyLinter struct {
	*linter
	policy *v1alpha1.Policy
	source engine.Source
	// module is the policy's Rego v1; nil if it is none.
	module *ast.Module
	// input is the schema of what the policy reads.
	input check.Schema
}

func (l *linter) lintPolicy(ctx context.Context, policy *v1alpha1.Policy) error {
	p := &policyLinter{linter: l, policy: policy, source: engine.FromPolicy(policy), input: check.InputSchema(policy.Spec.Match)}
	result, err := l.check(ctx, p.source, check.Environment{Policies: store.Sources(policies.BuiltIn(), l.folder.Policies)})
	if err != nil {
		return fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	// A module that cannot be parsed is a problem of the check, or a template of Gatekeeper.
	p.module, _ = ast.ParseModuleWithOpts(policy.Name, policy.Spec.Rego, ast.ParserOptions{RegoVersion: ast.RegoV1})
	for _, problem := range result.Problems {
		l.add(refused, policy.Name, p.problemPlace(problem), "%s", problem.Message+p.missingImport(problem.Message))
	}
	for _, warning := range result.Warnings {
		l.add(warningCode(warning.Kind), policy.Name, p.problemPlace(warning), "%s", warning.Message)
	}
	p.lintMatch()
	p.lintTests()
	if p.module == nil {
		return nil
	}
	p.lintConditions()
	p.lintRules()
	if !p.source.IsLibrary() { // the parameters and the match are those of its importers
		p.lintParameters()
		p.lintScope()
	}
	p.lintFormat()
	if len(result.Problems) > 0 {
		return nil
	}
	return p.lintDuration(ctx)
}

// warningCode returns the code of a warning of the check.
func warningCode(kind engine.ProblemKind) string {
	switch kind {
	case engine.MisspelledRule:
		return misspelledRule
	case engine.UnknownObjectField:
		return unknownObjectField
	case engine.ConflictingValue:
		return conflictingValue
	default:
		return otherWarning
	}
}

// fieldPath is the path with which some messages begin.
var fieldPath = regexp.MustCompile(`^spec\.(match|parameters|parametersSchema|enforcement|replaces)\b(\.[a-zA-Z]+|\[[0-9]+\])*`)

// problemPlace returns the place of a problem of the check.
func (p *policyLinter) problemPlace(problem engine.Problem) workbench.Place {
	if problem.Line > 0 && problem.Library == "" {
		return p.folder.RegoPlace(p.policy.Name, problem.Line, problem.Column)
	}
	if problem.Kind == engine.ConflictingValue {
		return p.changingRule()
	}
	if field := fieldPath.FindString(problem.Message); field != "" {
		return p.fieldPlace(strings.FieldsFunc(field, func(r rune) bool { return strings.ContainsRune(".[]", r) })...)
	}
	return p.fieldPlace("metadata", "name")
}

// changingRule returns the place of the first rule that changes objects.
func (p *policyLinter) changingRule() workbench.Place {
	if p.module != nil {
		for _, rule := range p.module.Rules {
			if slices.Contains([]string{"overrides", "defaults", "remove", "append", "nodes", "type"}, ruleName(rule)) {
				return p.folder.RegoPlace(p.policy.Name, rule.Location.Row, rule.Location.Col)
			}
		}
	}
	return p.fieldPlace("metadata", "name")
}

func (p *policyLinter) fieldPlace(path ...string) workbench.Place {
	return p.folder.FieldPlace(p.policy.Name, path...)
}

// at reports a finding at a location in the Rego.
func (p *policyLinter) at(code string, location *ast.Location, format string, args ...any) {
	place := workbench.Place{File: p.folder.RegoFile(p.policy.Name)}
	if location != nil {
		place = p.folder.RegoPlace(p.policy.Name, location.Row, max(location.Col, 1))
	}
	p.add(code, p.policy.Name, place, format, args...)
}

// undefinedName finds the name in OPA's message about one that is not defined.
var undefinedName = regexp.MustCompile(`^(?:var|undefined function) ([a-z_]+)[ .]`)

// missingImport returns what to add to a message about an undefined name of a library.
func (p *policyLinter) missingImport(message string) string {
	found := undefinedName.FindStringSubmatch(message + " ")
	if found == nil {
		return ""
	}
	for _, library := range policies.Libraries() {
		if strings.TrimSuffix(path.Base(library.Name), ".rego") == found[1] {
			return "; did you mean the library? Add import data.sluice.lib." + found[1]
		}
	}
	return ""
}

// lintUnitTests finds files of unit tests that cannot be parsed.
func (l *linter) lintUnitTests() {
	for _, file := range l.folder.Files() {
		text, ok := l.folder.UnitTests[file]
		if !ok {
			continue
		}
		_, err := ast.ParseModuleWithOpts(file, text, ast.ParserOptions{RegoVersion: ast.RegoV1})
		var list ast.Errors
		if !errors.As(err, &list) {
			l.lintTestFormat(file, text)
			continue
		}
		for _, fault := range list {
			place := workbench.Place{File: file}
			if fault.Location != nil {
				place.Line, place.Column = fault.Location.Row, max(fault.Location.Col, 1)
			}
			l.add(brokenUnitTest, "", place, "%s", fault.Message)
		}
	}
}

// lintCases finds cases that name something that does not exist.
func (l *linter) lintCases() {
	builtIn := policies.Names()
	for i := range l.folder.Cases {
		c := &l.folder.Cases[i]
		for name := range c.Parameters {
			if !l.folder.Has(name) && !slices.Contains(builtIn, name) {
				l.add(unknownInCase, "", l.folder.CasePlace(c, "parameters", name), "case %q: parameters: there is no policy %q", c.Name, name)
			}
		}
		exists := func(p v1alpha1.Project) bool { return p.Name == c.Project }
		if c.Project != "" && !slices.ContainsFunc(l.folder.Projects, exists) {
			l.add(unknownInCase, "", l.folder.CasePlace(c, "project"),
				"case %q: project: the folder has no Project %q", c.Name, c.Project)
		}
	}
}

// lintTests finds a policy without unit tests and cases.
func (p *policyLinter) lintTests() {
	file := p.folder.PolicyFile(p.policy.Name)
	stem := strings.TrimSuffix(file, path.Ext(file))
	for i := range p.folder.Cases {
		if strings.TrimSuffix(p.folder.Cases[i].File, ".case.yaml") == stem {
			return
		}
	}
	reference := "data." + strings.TrimPrefix(cmp.Or(packageOf(p.policy.Spec.Rego), p.policy.Name), "data.")
	for name, text := range p.folder.UnitTests {
		if strings.TrimSuffix(name, "_test.rego") == stem || strings.Contains(text, reference) {
			return
		}
	}
	p.add(noTests, p.policy.Name, p.fieldPlace("metadata", "name"),
		"the policy has no unit tests and no cases: add %s_test.rego or %s.case.yaml; sluice policy new shows both", stem, stem)
}

// packageOf returns the package of a module, such as data.no_latest; empty if it has none.
func packageOf(rego string) string {
	module, err := ast.ParseModuleWithOpts("", rego, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil {
		return ""
	}
	return module.Package.Path.String()
}
