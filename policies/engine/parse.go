// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine/dependency"
)

// maxNesting is how deep a module's expressions may nest, counted in the nodes
// of its syntax tree: about a hundred brackets. The compiler takes time in the
// square of it.
const maxNesting = 500

// libraryRoot is where libraries are, and gatekeeperRoot is where those are that
// Gatekeeper's templates import.
var (
	libraryRoot    = ast.MustParseRef("data.sluice.lib")
	gatekeeperRoot = ast.MustParseRef("data.lib")
)

// sluiceRoot is the package under which policies may not be.
var sluiceRoot = ast.MustParseRef("data.sluice")

// parsedModule is a module that was read.
type parsedModule struct {
	// module is nil where the compiler must not see it.
	module *ast.Module
	rules  ruleSet
	// gatekeeper: the module is Rego v0, a template of Gatekeeper's.
	gatekeeper bool
}

// parseModule reads a policy's module and checks what can be seen without compiling.
func parseModule(text string) (parsedModule, []Problem) {
	if len(text) > maxSourceBytes {
		return parsedModule{}, []Problem{{Message: fmt.Sprintf("the module has %d bytes; %d are allowed: split the policy", len(text), maxSourceBytes)}}
	}
	if !utf8.ValidString(text) {
		return parsedModule{}, []Problem{{Message: "the module is not UTF-8 text"}}
	}
	p := parsedModule{}
	module, err := ast.ParseModuleWithOpts(policyFile, text, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities})
	if err != nil {
		old, oldErr := ast.ParseModuleWithOpts(policyFile, text, ast.ParserOptions{RegoVersion: ast.RegoV0, Capabilities: capabilitiesV0})
		if oldErr != nil {
			return parsedModule{}, problemsFromOPA(err)
		}
		if rules, _ := validateShapes(old, true); rules != 1<<ruleViolation {
			return parsedModule{}, append(problemsFromOPA(err), Problem{
				Line: 1, Column: 1,
				Message: "the module is Rego v0, which only a Gatekeeper template may be: rewrite it with opa fmt --v0-v1 --write",
			})
		}
		module, p.gatekeeper = old, true
	}
	p.module = module
	var problems []Problem
	if module.Package.Path.HasPrefix(sluiceRoot) {
		problems = append(problems, problemAt(module.Package.Loc(), "the package %s is Sluice's own; choose another name", module.Package.Path))
	}
	if problem, ok := findDeepNesting(module); ok {
		return parsedModule{}, append(problems, problem)
	}
	rules, wrong := validateShapes(module, p.gatekeeper)
	p.rules = rules
	problems = append(problems, wrong...)
	return p, append(problems, forbiddenReferences(module)...)
}

// forbiddenReferences finds the functions that policies do not have and the fields that
// input does not have. The compiler would find the former too, but stop there.
func forbiddenReferences(module *ast.Module) []Problem {
	// A name that the module gives a meaning is no built-in function's.
	own := make(map[ast.Value]bool)
	for _, rule := range module.Rules {
		own[ast.Var(topLevelName(rule))] = true
	}
	for _, imported := range module.Imports {
		own[imported.Name()] = true
	}
	var problems []Problem
	for _, rule := range module.Rules {
		dependency.WalkRefs(rule, func(ref ast.Ref, location *ast.Location) {
			name := ref.String()
			if why, ok := forbiddenReason(name); ok && ast.BuiltinMap[name] != nil && !own[ref[0].Value] {
				problems = append(problems, problemAt(location, "%s is not to be had in a policy: %s", name, why))
			} else if wrong := undefinedField(ref); wrong != "" {
				problems = append(problems, problemAt(location, "%s", wrong))
			}
		})
	}
	return problems
}

// findDeepNesting finds the first rule that nests too deep.
func findDeepNesting(module *ast.Module) (Problem, bool) {
	for _, rule := range module.Rules {
		depth, deepest := 0, 0
		ast.NewBeforeAfterVisitor(
			func(any) bool {
				depth++
				deepest = max(deepest, depth)
				return depth > maxNesting
			},
			func(any) { depth-- },
		).Walk(rule)
		if deepest > maxNesting {
			return problemAt(rule.Loc(), "the rule %s nests too deep: split it into rules of their own", topLevelName(rule)), true
		}
	}
	return Problem{}, false
}

// isLibraryRef tells whether a ref leads to a library.
func isLibraryRef(ref ast.Ref) bool {
	return ref.HasPrefix(libraryRoot) || ref.HasPrefix(gatekeeperRoot)
}

// parseLibraries reads the libraries that policies may import.
func parseLibraries(libraries []Library) (map[string]*ast.Module, []Problem) {
	modules := make(map[string]*ast.Module, len(libraries))
	var problems []Problem
	for _, library := range libraries {
		module, err := ast.ParseModuleWithOpts(library.Name, library.Rego, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities})
		switch {
		case err != nil:
			problems = append(problems, problemsFromOPA(err)...)
		case !isLibraryRef(module.Package.Path):
			problems = append(problems, problemAt(module.Package.Loc(), "the package %s is not %s, %s or below one of them", module.Package.Path, libraryRoot, gatekeeperRoot))
		case library.Name == policyFile || modules[library.Name] != nil:
			problems = append(problems, Problem{Library: library.Name, Message: "a library needs a name of its own"})
		default:
			modules[library.Name] = module
		}
	}
	return modules, sortProblems(problems)
}

// misspelledRules warns of rules that look like a known rule misspelt: almost its name,
// and used nowhere in the module.
func misspelledRules(module *ast.Module) []Problem {
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
		name := topLevelName(rule)
		if used[name] || warned[name] || len(rule.Head.Args) > 0 {
			continue
		}
		if meant, ok := similarRule(name); ok {
			warned[name] = true
			problems = append(problems, problemAt(rule.Loc(), "the rule %s is used nowhere and has no meaning of its own; was %s meant?", name, meant))
		}
	}
	return problems
}

// similarRule finds the known rule that a name is almost.
func similarRule(name string) (string, bool) {
	if _, ok := lookUpRule(name); ok {
		return "", false
	}
	lower := strings.ToLower(strings.Trim(name, "_"))
	for _, ending := range []string{"", "s", "es", "ed", "ies", "ied", "ing", "ings", "al", "als"} {
		stem, ok := strings.CutSuffix(lower, ending)
		if !ok {
			continue
		}
		for _, want := range ruleDefinitions {
			if slices.Contains([]string{want.name, strings.TrimSuffix(want.name, "s"), strings.TrimSuffix(want.name, "y"), strings.TrimSuffix(want.name, "e")}, stem) {
				return want.name, true
			}
		}
	}
	for _, want := range ruleDefinitions {
		if allowed := len(want.name) / 4; editDistance(lower, want.name) <= allowed {
			return want.name, true
		}
	}
	return "", false
}

// editDistance counts the letters to add, drop, change or swap with their neighbor
// to make one name of the other.
func editDistance(a, b string) int {
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
