// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

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
