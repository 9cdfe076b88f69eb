// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
)

// ruleName is a rule whose name has a meaning.
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

// question is what a query asks all rules of one kind.
type question uint8

const (
	// aboutObject asks what becomes of an object.
	aboutObject question = iota
	// forObjects asks for the objects of a project, a department or a node pool, and
	// what they require.
	forObjects
	// forType asks for a workload's type.
	forType
	questionCount
)

// meaning is what a rule of a known name is.
type meaning struct {
	name string
	// set: the rule is a set, else it is an object.
	set bool
	// momentary: the rule may read the time and the present use.
	momentary bool
	// asked is the question that the rule answers.
	asked question
	// text: the rule is a string, one of the workload types.
	text bool
	// example shows how the rule is written.
	example string
}

var meanings = [ruleCount]meaning{
	ruleDefaults:  {name: "defaults", example: `defaults := {"metadata": {"labels": {"a": "b"}}} if { … }`},
	ruleOverrides: {name: "overrides", example: `overrides := {"metadata": {"labels": {"a": "b"}}} if { … }`},
	ruleNodes:     {name: "nodes", set: true, example: `nodes contains {"key": "a", "operator": "In", "values": ["b"]} if { … }`},
	ruleAppend:    {name: "append", set: true, example: `append contains {"path": ["spec", "tolerations"], "value": {…}} if { … }`},
	ruleRemove:    {name: "remove", set: true, example: `remove contains ["spec", "nodeName"] if { … }`},
	ruleDeny:      {name: "deny", set: true, momentary: true, example: `deny contains msg if { …; msg := "…" }`},
	ruleViolation: {name: "violation", set: true, momentary: true, example: `violation contains {"msg": msg} if { …; msg := "…" }`},
	ruleWarn:      {name: "warn", set: true, momentary: true, example: `warn contains msg if { …; msg := "…" }`},
	ruleObjects:   {name: "objects", set: true, asked: forObjects, example: `objects contains {"apiVersion": "v1", …} if { … }`},
	ruleRequires:  {name: "requires", set: true, asked: forObjects, example: `requires contains {"crd": "…", "fix": "…"} if { … }`},
	ruleType:      {name: "type", text: true, asked: forType, example: `type := "interactive" if { … }, with train, interactive or inference`},
}

// ruleSet is a set of known rules.
type ruleSet uint16

func (s ruleSet) has(rule ruleName) bool { return s&(1<<rule) != 0 }

func (s *ruleSet) add(rule ruleName) { *s |= 1 << rule }

// changing are the rules that change the object.
const changing = ruleSet(1<<ruleDefaults | 1<<ruleOverrides | 1<<ruleNodes | 1<<ruleAppend | 1<<ruleRemove)

// knownRule finds a rule by its name.
func knownRule(name string) (ruleName, bool) {
	for rule := range ruleCount {
		if meanings[rule].name == name {
			return rule, true
		}
	}
	return 0, false
}

// topName is the name under which a rule stands in its package.
func topName(rule *ast.Rule) string {
	if name, ok := rule.Head.Ref()[0].Value.(ast.Var); ok {
		return string(name)
	}
	return ""
}

// checkShapes finds the known rules of a module, and those that are not written
// as what they are. In a template of Gatekeeper's, type is the author's own.
func checkShapes(module *ast.Module, gatekeeper bool) (ruleSet, []Problem) {
	var found ruleSet
	var problems []Problem
	for _, rule := range module.Rules {
		name, ok := knownRule(topName(rule))
		if !ok || gatekeeper && name == ruleType {
			continue
		}
		found.add(name)
		if wrong := wrongShape(meanings[name], rule); wrong != "" {
			problems = append(problems, at(rule.Loc(), "%s %s: write %s", meanings[name].name, wrong, meanings[name].example))
		}
	}
	return found, problems
}

// wrongShape says what a rule is instead of what it must be, or nothing.
func wrongShape(want meaning, rule *ast.Rule) string {
	head := rule.Head
	multi := head.RuleKind() == ast.MultiValue
	switch {
	case len(head.Args) > 0:
		return "is a function here, and must be a rule"
	case want.set && len(head.Ref()) > 1:
		return "is an object here, and must be a set"
	case want.set && rule.Default:
		return "is a set and has no default value"
	case want.set && !multi:
		return "has one value here, and must be a set"
	case !want.set && multi:
		return "is a set here, and must be " + want.shape()
	case want.text && len(head.Ref()) > 1:
		return "is an object here, and must be a string"
	case want.text && neverType(head.Value):
		return fmt.Sprintf("is %s here, and must be a workload type", head.Value)
	case want.text:
		return ""
	case !want.set && len(head.Ref()) == 1 && neverObject(head.Value):
		return fmt.Sprintf("is %s here, and must be an object", head.Value)
	}
	return ""
}

// shape is what the one value of a rule must be.
func (m meaning) shape() string {
	if m.text {
		return "a string"
	}
	return "an object"
}

// neverType tells whether a value as written can be told to be no workload type.
func neverType(value *ast.Term) bool {
	switch value := value.Value.(type) {
	case ast.String:
		return !slices.Contains(v1alpha1.WorkloadTypes, v1alpha1.WorkloadType(value))
	case ast.Object, *ast.ObjectComprehension:
		return true
	}
	return neverObject(value)
}

// neverObject tells whether a value as written can be told to be no object.
func neverObject(value *ast.Term) bool {
	switch value.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String, *ast.Array, ast.Set, *ast.ArrayComprehension, *ast.SetComprehension:
		return true
	}
	return false
}
