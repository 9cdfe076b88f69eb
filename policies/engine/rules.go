// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"iter"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
)

// ruleName identifies a rule whose name has a meaning.
type ruleName uint8

const (
	ruleDefaults ruleName = iota
	ruleOverrides
	ruleNodes
	ruleAppend
	ruleRemove
	ruleDeny
	ruleViolation
	ruleWarn
	ruleObjects
	ruleRequires
	ruleType
	ruleCount
)

// requestKind is a kind of request. One query evaluates all rules for it.
type requestKind uint8

const (
	// admissionRequest evaluates an admitted object.
	admissionRequest requestKind = iota
	// renderRequest renders the objects and requirements of a project, department or node
	// pool.
	renderRequest
	// typeRequest determines a workload's type.
	typeRequest
	requestKindCount
)

// ruleDefinition describes a known rule.
type ruleDefinition struct {
	name string
	// isSet: the rule is a set, otherwise a single value.
	isSet bool
	// volatile: the rule may read the time and the present use.
	volatile bool
	// request is the kind of request that the rule serves.
	request requestKind
	// isString: the rule is a string, one of the workload types; otherwise a single value
	// is an object.
	isString bool
	// example shows how to write the rule.
	example string
}

var ruleDefinitions = [ruleCount]ruleDefinition{
	ruleDefaults:  {name: "defaults", example: `defaults := {"metadata": {"labels": {"a": "b"}}} if { … }`},
	ruleOverrides: {name: "overrides", example: `overrides := {"metadata": {"labels": {"a": "b"}}} if { … }`},
	ruleNodes:     {name: "nodes", isSet: true, example: `nodes contains {"key": "a", "operator": "In", "values": ["b"]} if { … }`},
	ruleAppend:    {name: "append", isSet: true, example: `append contains {"path": ["spec", "tolerations"], "value": {…}} if { … }`},
	ruleRemove:    {name: "remove", isSet: true, example: `remove contains ["spec", "nodeName"] if { … }`},
	ruleDeny:      {name: "deny", isSet: true, volatile: true, example: `deny contains msg if { …; msg := "…" }`},
	ruleViolation: {name: "violation", isSet: true, volatile: true, example: `violation contains {"msg": msg} if { …; msg := "…" }`},
	ruleWarn:      {name: "warn", isSet: true, volatile: true, example: `warn contains msg if { …; msg := "…" }`},
	ruleObjects:   {name: "objects", isSet: true, request: renderRequest, example: `objects contains {"apiVersion": "v1", …} if { … }`},
	ruleRequires: {
		name: "requires", isSet: true, request: renderRequest,
		example: `requires contains {"crd": "…", "fix": "…"} if { … }`,
	},
	ruleType: {
		name: "type", isString: true, request: typeRequest,
		example: `type := "interactive" if { … }, with train, interactive or inference`,
	},
}

// ruleSet is a set of known rules.
type ruleSet uint16

func (s ruleSet) has(rule ruleName) bool { return s&(1<<rule) != 0 }

func (s *ruleSet) add(rule ruleName) { *s |= 1 << rule }

// all returns the rules of the set in their order.
func (s ruleSet) all() iter.Seq[ruleName] {
	return func(yield func(ruleName) bool) {
		for rule := range ruleCount {
			if s.has(rule) && !yield(rule) {
				return
			}
		}
	}
}

// ofKind returns the rules that serve one kind of request.
func (s ruleSet) ofKind(kind requestKind) ruleSet {
	var found ruleSet
	for rule := range s.all() {
		if ruleDefinitions[rule].request == kind {
			found.add(rule)
		}
	}
	return found
}

// mutatingRules are the rules that change the object.
const mutatingRules = ruleSet(1<<ruleDefaults | 1<<ruleOverrides | 1<<ruleNodes | 1<<ruleAppend | 1<<ruleRemove)

// lookUpRule returns the rule of a name.
func lookUpRule(name string) (ruleName, bool) {
	for rule := range ruleCount {
		if ruleDefinitions[rule].name == name {
			return rule, true
		}
	}
	return 0, false
}

// IsRuleName reports whether rules of this name have a meaning in policies.
func IsRuleName(name string) bool {
	_, known := lookUpRule(name)
	return known
}

// topLevelName returns the name of a rule in its package.
func topLevelName(rule *ast.Rule) string {
	if name, ok := rule.Head.Ref()[0].Value.(ast.Var); ok {
		return string(name)
	}
	return ""
}

// validateShapes returns the known rules of a module, and a problem for each that has the
// wrong shape. In a Gatekeeper template, type is the author's own rule.
func validateShapes(module *ast.Module, gatekeeper bool) (ruleSet, []Problem) {
	var found ruleSet
	var problems []Problem
	for _, rule := range module.Rules {
		name, ok := lookUpRule(topLevelName(rule))
		if !ok || gatekeeper && name == ruleType {
			continue
		}
		found.add(name)
		if wrong := shapeProblem(ruleDefinitions[name], rule); wrong != "" {
			problems = append(problems, problemAt(rule.Loc(), "%s %s: write %s", ruleDefinitions[name].name, wrong, ruleDefinitions[name].example))
		}
	}
	return found, problems
}

// shapeProblem describes how a rule differs from its definition; empty if it does not.
func shapeProblem(definition ruleDefinition, rule *ast.Rule) string {
	head := rule.Head
	multi := head.RuleKind() == ast.MultiValue
	switch {
	case len(head.Args) > 0:
		return "is a function here, and must be a rule"
	case definition.isSet && len(head.Ref()) > 1:
		return "is an object here, and must be a set"
	case definition.isSet && rule.Default:
		return "is a set and has no default value"
	case definition.isSet && !multi:
		return "has one value here, and must be a set"
	case !definition.isSet && multi:
		return "is a set here, and must be " + definition.describeShape()
	case definition.isString && len(head.Ref()) > 1:
		return "is an object here, and must be a string"
	case definition.isString && isNeverWorkloadType(head.Value):
		return fmt.Sprintf("is %s here, and must be a workload type", head.Value)
	case definition.isString:
		return ""
	case !definition.isSet && len(head.Ref()) == 1 && isNeverObject(head.Value):
		return fmt.Sprintf("is %s here, and must be an object", head.Value)
	}
	return ""
}

// describeShape names the type of a single value.
func (m ruleDefinition) describeShape() string {
	if m.isString {
		return "a string"
	}
	return "an object"
}

// isNeverWorkloadType reports whether a value, as written, cannot be a workload type.
func isNeverWorkloadType(value *ast.Term) bool {
	switch value := value.Value.(type) {
	case ast.String:
		return !slices.Contains(v1alpha1.WorkloadTypes, v1alpha1.WorkloadType(value))
	case ast.Object, *ast.ObjectComprehension:
		return true
	}
	return isNeverObject(value)
}

// isNeverObject reports whether a value, as written, cannot be an object.
func isNeverObject(value *ast.Term) bool {
	switch value.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String, *ast.Array, ast.Set, *ast.ArrayComprehension, *ast.SetComprehension:
		return true
	}
	return false
}
