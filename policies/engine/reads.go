// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// The fields of input. now and use change from moment to moment.
var inputFields = []string{
	"review", "object", "oldObject", "workload", "project", "department", "nodePools", nodePoolField, "now", "use", "parameters",
}

const (
	nowField   = "now"
	usageField = "use"
	// nodePoolField is for objects and requires: whoever judges a pod has
	// nodePools, and would miss it for ever.
	nodePoolField = "nodePool"
)

// inputPath is a path in input, as far as it is written out: the field first.
type inputPath []string

// maxPathDepth is how many steps of a path are told apart.
const maxPathDepth = 6

// inputRead is one place at which a rule reads input.
type inputRead struct {
	// path is what is read: it, or something under it. Empty is all of input.
	path inputPath
	// volatile says how the time or the present use is read, or may be.
	volatile string
	// location is where.
	location *ast.Location
	// through are the rules between the one that was asked about and this one.
	through []string
}

// readCollector walks from a rule to all that it depends on: helper rules, functions
// and libraries, however many steps away.
type readCollector struct {
	opa     *ast.Compiler
	visited map[*ast.Rule]bool
	reads   []inputRead
}

// collectReads returns all that the rules under a ref read of input.
func collectReads(opa *ast.Compiler, ref ast.Ref) []inputRead {
	r := &readCollector{opa: opa, visited: make(map[*ast.Rule]bool)}
	for _, rule := range rulesAt(opa, ref) {
		r.visitRule(rule, nil)
	}
	return r.reads
}

func rulesAt(opa *ast.Compiler, ref ast.Ref) []*ast.Rule {
	return opa.GetRulesDynamicWithOpts(ref, ast.RulesOptions{IncludeHiddenModules: true})
}

func (r *readCollector) visitRule(rule *ast.Rule, through []string) {
	if r.visited[rule] {
		return
	}
	r.visited[rule] = true
	var calls []*ast.Rule
	walkRefs(rule, func(ref ast.Ref, location *ast.Location) {
		if isInputRef(ref) {
			r.reads = append(r.reads, inputRead{
				path: constantInputPath(ref), volatile: volatileRead(ref), location: location, through: through,
			})
		}
		calls = append(calls, rulesAt(r.opa, ref)...)
	})
	for _, called := range calls {
		r.visitRule(called, append(slices.Clone(through), called.Ref().String()))
	}
}

// constantInputPath is the part of a ref to input that is written out.
func constantInputPath(ref ast.Ref) inputPath {
	var path inputPath
	for _, part := range ref[1:] {
		step, ok := part.Value.(ast.String)
		if !ok || len(path) == maxPathDepth {
			break
		}
		path = append(path, string(step))
	}
	return path
}

// volatileRead says how a ref reads the time or the present use, or may; nothing
// where it does not. It rather says so once too often: whoever hands on input
// whole, or reads a field that is only known at run time, may read anything.
func volatileRead(ref ast.Ref) string {
	if len(ref) == 1 {
		return "input whole, with now and use in it"
	}
	field, ok := ref[1].Value.(ast.String)
	switch {
	case !ok:
		return "input[…] with a key that is not written out, which may be now or use"
	case field == nowField || field == usageField:
		return "input." + string(field)
	}
	return ""
}

func isInputRef(ref ast.Ref) bool { return ref[0].Equal(ast.InputRootDocument) }

func isDataRef(ref ast.Ref) bool { return ref[0].Equal(ast.DefaultRootDocument) }

// walkRefs visits every ref of a rule, its else branches and the terms of its
// head's ref included; input by itself counts as one.
func walkRefs(rule *ast.Rule, visit func(ast.Ref, *ast.Location)) {
	var walk func(*ast.Term) bool
	walk = func(term *ast.Term) bool {
		location := term.Location
		if location == nil {
			location = rule.Loc()
		}
		switch value := term.Value.(type) {
		case ast.Ref:
			if len(value) > 0 {
				visit(value, location)
				for i, part := range value {
					// The first term is the ref's root, unless it is a call.
					if _, root := part.Value.(ast.Var); i > 0 || !root {
						ast.WalkTerms(part, walk)
					}
				}
			}
			return true
		case ast.Var:
			if value.Equal(ast.InputRootDocument.Value) {
				visit(ast.InputRootRef, location)
			}
		}
		return false
	}
	ast.WalkTerms(rule, walk)
	for branch := rule; branch != nil; branch = branch.Else {
		for _, part := range branch.Head.Ref()[1:] {
			ast.WalkTerms(part, walk)
		}
	}
}

func ruleRef(pkg ast.Ref, rule ruleName) ast.Ref {
	return pkg.Append(ast.StringTerm(ruleDefinitions[rule].name))
}

// validateReads finds what compiled modules must not read: fields that input does
// not have, data that does not exist, and, in rules that must not depend on the
// moment, the time and the present use. Without pkg only the first two are
// looked for.
func validateReads(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) []Problem {
	var problems []Problem
	for _, module := range opa.Modules {
		for _, rule := range module.Rules {
			walkRefs(rule, func(ref ast.Ref, location *ast.Location) {
				if wrong := undefinedReference(opa, ref); wrong != "" {
					problems = append(problems, problemAt(location, "%s", wrong))
				}
			})
		}
	}
	if pkg == nil {
		return problems
	}
	for rule := range ruleCount {
		if !rules.has(rule) {
			continue
		}
		for _, read := range collectReads(opa, ruleRef(pkg, rule)) {
			if wrong := forbiddenRead(ruleDefinitions[rule], read); wrong != "" {
				problems = append(problems, problemAt(read.location, "%s", wrong))
			}
		}
	}
	return problems
}

// forbiddenRead says why a rule may not read what it reads, or nothing.
func forbiddenRead(rule ruleDefinition, read inputRead) string {
	through := ""
	if len(read.through) > 0 {
		through = " through " + strings.Join(read.through, ", then ")
	}
	switch {
	case read.volatile != "" && !rule.volatile:
		return fmt.Sprintf("%s must not depend on the time or the present use, and reads %s%s; only deny, violation and warn may",
			rule.name, read.volatile, through)
	case rule.request != renderRequest && len(read.path) > 0 && read.path[0] == nodePoolField:
		return fmt.Sprintf("%s is not told input.nodePool, and reads it%s; only objects and requires are: the pools of a project are input.nodePools",
			rule.name, through)
	}
	return ""
}

// undefinedReference says that a ref leads to what no policy has, which would be undefined
// for ever, and so never refused.
func undefinedReference(opa *ast.Compiler, ref ast.Ref) string {
	if !isDataRef(ref) {
		return undefinedField(ref)
	}
	if len(rulesAt(opa, ref)) == 0 {
		return fmt.Sprintf("%s does not exist; policies see no data but their own rules and %s", ref.ConstantPrefix(), libraryRoot)
	}
	if len(ref) == 1 || !isConstant(ref[1]) {
		return fmt.Sprintf("%s is read whole; name the rule", ref[0])
	}
	return ""
}

func undefinedField(ref ast.Ref) string {
	if !isInputRef(ref) || len(ref) == 1 {
		return ""
	}
	if field, ok := ref[1].Value.(ast.String); ok && !slices.Contains(inputFields, string(field)) {
		return fmt.Sprintf("input.%s does not exist; input has %s", string(field), strings.Join(inputFields, ", "))
	}
	return ""
}

func isConstant(term *ast.Term) bool {
	_, ok := term.Value.(ast.String)
	return ok
}
