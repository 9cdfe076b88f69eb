// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine/dependency"
)

func ruleRef(pkg ast.Ref, rule ruleName) ast.Ref {
	return pkg.Append(ast.StringTerm(ruleDefinitions[rule].name))
}

// volatileRules returns those rules of a module that read the time or the present use,
// or may.
func volatileRules(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) ruleSet {
	var found ruleSet
	for rule := range rules.all() {
		isVolatile := func(read dependency.Read) bool { return read.Volatile != "" }
		if slices.ContainsFunc(dependency.Collect(opa, ruleRef(pkg, rule)), isVolatile) {
			found.add(rule)
		}
	}
	return found
}

// validateReferences returns a problem for each reference to a field of input or to data
// that does not exist.
func validateReferences(opa *ast.Compiler) []Problem {
	var problems []Problem
	for _, module := range opa.Modules {
		for _, rule := range module.Rules {
			dependency.WalkRefs(rule, func(ref ast.Ref, location *ast.Location) {
				if wrong := undefinedReference(opa, ref); wrong != "" {
					problems = append(problems, problemAt(location, "%s", wrong))
				}
			})
		}
	}
	return problems
}

// validateReads returns a problem for each field of input that a rule of the module reads
// and must not.
func validateReads(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) []Problem {
	var problems []Problem
	for rule := range rules.all() {
		for _, read := range dependency.Collect(opa, ruleRef(pkg, rule)) {
			if wrong := forbiddenRead(ruleDefinitions[rule], read); wrong != "" {
				problems = append(problems, problemAt(read.Location, "%s", wrong))
			}
		}
	}
	return problems
}

// forbiddenRead returns why a rule must not read a part of input; empty if it may.
func forbiddenRead(rule ruleDefinition, read dependency.Read) string {
	through := ""
	if len(read.Through) > 0 {
		through = " through " + strings.Join(read.Through, ", then ")
	}
	switch {
	case read.Volatile != "" && !rule.volatile:
		return fmt.Sprintf("%s must not depend on the time or the present use, and reads %s%s; only deny, violation and warn may",
			rule.name, read.Volatile, through)
	case rule.request != renderRequest && len(read.Path) > 0 && read.Path[0] == dependency.NodePoolField:
		return fmt.Sprintf("%s reads input.nodePool%s, which only objects and requires have; a project's node pools are input.nodePools",
			rule.name, through)
	case rule.request == renderRequest && len(read.Path) > 0 && read.Path[0] == dependency.NamespaceField:
		return fmt.Sprintf("%s reads input.namespace%s, which objects and requires do not have; a project's labels are input.project.labels",
			rule.name, through)
	}
	return ""
}

// undefinedReference describes a reference to something that does not exist: it would
// always be undefined, so a deny would never refuse.
func undefinedReference(opa *ast.Compiler, ref ast.Ref) string {
	if !dependency.IsDataRef(ref) {
		return undefinedField(ref)
	}
	if dependency.IsStoredDataRef(opa, ref) {
		return ""
	}
	if len(dependency.RulesAt(opa, ref)) == 0 {
		return fmt.Sprintf("%s does not exist; policies see no data but their own rules, data.%s, data.%s and %s",
			ref.ConstantPrefix(), dependency.ConfigData, dependency.ObjectData, libraryRoot)
	}
	if len(ref) > 1 {
		if _, ok := ref[1].Value.(ast.String); ok {
			return ""
		}
	}
	return fmt.Sprintf("%s is read as a whole; name the rule", ref[0])
}

// undefinedField describes a reference to a field that input does not have.
func undefinedField(ref ast.Ref) string {
	if !dependency.IsInputRef(ref) || len(ref) == 1 {
		return ""
	}
	if field, ok := ref[1].Value.(ast.String); ok && !slices.Contains(dependency.InputFields, string(field)) {
		return fmt.Sprintf("input.%s does not exist; input has %s", string(field), strings.Join(dependency.InputFields, ", "))
	}
	return ""
}
