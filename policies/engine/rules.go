// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
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
	ruleCount
)

// meaning is what a rule of a known name is.
type meaning struct {
	name string
	// set: the rule is a set, else it is an object.
	set bool
	// momentary: the rule may read the time and the present use.
	momentary bool
	// rendering: the rule is asked per project, not per admitted object.
	rendering bool
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
	ruleObjects:   {name: "objects", set: true, rendering: true, example: `objects contains {"apiVersion": "v1", …} if { … }`},
	ruleRequires:  {name: "requires", set: true, rendering: true, example: `requires contains {"crd": "…", "fix": "…"} if { … }`},
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
// as what they are.
func checkShapes(module *ast.Module) (ruleSet, []Problem) {
	var found ruleSet
	var problems []Problem
	for _, rule := range module.Rules {
		name, ok := knownRule(topName(rule))
		if !ok {
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
		return "is a set here, and must be an object"
	case !want.set && len(head.Ref()) == 1 && neverObject(head.Value):
		return fmt.Sprintf("is %s here, and must be an object", head.Value)
	}
	return ""
}

// neverObject tells whether a value as written can be told to be no object.
func neverObject(value *ast.Term) bool {
	switch value.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String, *ast.Array, ast.Set, *ast.ArrayComprehension, *ast.SetComprehension:
		return true
	}
	return false
}

// misnamed warns of rules that look like a known rule misspelt: almost its name,
// and used nowhere in the module.
func misnamed(module *ast.Module) []Problem {
	used := make(map[string]bool)
	for _, rule := range module.Rules {
		ast.WalkVars(rule.Body, func(v ast.Var) bool { used[string(v)] = true; return false })
		ast.WalkVars(rule.Head.Args, func(v ast.Var) bool { used[string(v)] = true; return false })
		if rule.Head.Value != nil {
			ast.WalkVars(rule.Head.Value, func(v ast.Var) bool { used[string(v)] = true; return false })
		}
	}
	var problems []Problem
	warned := make(map[string]bool)
	for _, rule := range module.Rules {
		name := topName(rule)
		if used[name] || warned[name] || len(rule.Head.Args) > 0 {
			continue
		}
		if meant, ok := nearRule(name); ok {
			warned[name] = true
			problems = append(problems, at(rule.Loc(), "the rule %s is used nowhere and has no meaning of its own; was %s meant?", name, meant))
		}
	}
	return problems
}

// nearRule finds the known rule that a name is almost.
func nearRule(name string) (string, bool) {
	if _, ok := knownRule(name); ok {
		return "", false
	}
	lower := strings.ToLower(strings.Trim(name, "_"))
	for _, ending := range []string{"", "s", "es", "ed", "ies", "ied", "ing", "ings", "al", "als"} {
		stem, ok := strings.CutSuffix(lower, ending)
		if !ok {
			continue
		}
		for _, want := range meanings {
			if slices.Contains([]string{want.name, strings.TrimSuffix(want.name, "s"), strings.TrimSuffix(want.name, "y"), strings.TrimSuffix(want.name, "e")}, stem) {
				return want.name, true
			}
		}
	}
	for _, want := range meanings {
		if allowed := len(want.name) / 4; distance(lower, want.name) <= allowed {
			return want.name, true
		}
	}
	return "", false
}

// distance counts the letters to add, drop, change or swap with their neighbour
// to make one name of the other.
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
