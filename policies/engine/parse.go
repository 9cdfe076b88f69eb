// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine/dependency"
)

// maxNesting limits how deep the expressions of a module may nest, counted in nodes of
// its syntax tree: about a hundred brackets. Compile time grows with its square.
const maxNesting = 500

var (
	// libraryRoot is the package of the libraries, gatekeeperRoot the package from which
	// Gatekeeper's templates import.
	libraryRoot    = ast.MustParseRef("data.sluice.lib")
	gatekeeperRoot = ast.MustParseRef("data.lib")
)

// sluiceRoot is the package that is reserved for Sluice.
var sluiceRoot = ast.MustParseRef("data.sluice")

// parsedModule is a parsed policy.
type parsedModule struct {
	// module is nil if the compiler must not see it.
	module *ast.Module
	rules  ruleSet
	// gatekeeper: the module is a Gatekeeper template in Rego v0.
	gatekeeper bool
}

// parseModule parses a policy's module, and checks what needs no compiler.
func parseModule(text string) (parsedModule, []Problem) {
	if problems := validateText(text); len(problems) > 0 {
		return parsedModule{}, problems
	}
	p := parsedModule{}
	module, err := ast.ParseModuleWithOpts(policyFile, text, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities})
	if err != nil {
		v0, v0Err := ast.ParseModuleWithOpts(policyFile, text, ast.ParserOptions{RegoVersion: ast.RegoV0, Capabilities: capabilitiesV0})
		if v0Err != nil {
			return parsedModule{}, problemsFromOPA(err)
		}
		if rules, _ := validateShapes(v0, true); rules != 1<<ruleViolation {
			return parsedModule{}, append(problemsFromOPA(err), Problem{
				Line: 1, Column: 1,
				Message: "the module is Rego v0, which only a Gatekeeper template may be: rewrite it with opa fmt --v0-v1 --write",
			})
		}
		module, p.gatekeeper = v0, true
	}
	p.module = module
	var problems []Problem
	if module.Package.Path.HasPrefix(sluiceRoot) {
		problems = append(problems, problemAt(module.Package.Loc(),
			"the package %s is reserved for Sluice; choose another name", module.Package.Path))
	}
	if problem, ok := findDeepNesting(module); ok {
		return parsedModule{}, append(problems, problem)
	}
	rules, wrong := validateShapes(module, p.gatekeeper)
	p.rules = rules
	problems = append(problems, wrong...)
	return p, append(problems, forbiddenReferences(module)...)
}

// validateText checks the text of a module before it is parsed.
func validateText(text string) []Problem {
	switch {
	case len(text) > maxSourceBytes:
		return []Problem{{Message: fmt.Sprintf("the module has %d bytes; %d are allowed: split the policy", len(text), maxSourceBytes)}}
	case !utf8.ValidString(text):
		return []Problem{{Message: "the module is not UTF-8 text"}}
	}
	return nil
}

// forbiddenReferences returns a problem for each built-in function that policies do not
// have, and for each undefined field of input. The compiler would stop at the first such
// function.
func forbiddenReferences(module *ast.Module) []Problem {
	// Names that the module defines or imports are not those of built-in functions.
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
				problems = append(problems, problemAt(location, "%s is not available in policies: %s", name, why))
			} else if wrong := undefinedField(ref); wrong != "" {
				problems = append(problems, problemAt(location, "%s", wrong))
			}
		})
	}
	return problems
}

// findDeepNesting returns a problem for the first rule that nests too deep.
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
			return problemAt(rule.Loc(), "the rule %s nests too deep: split it into several rules", topLevelName(rule)), true
		}
	}
	return Problem{}, false
}

// isLibraryRef reports whether a reference leads to a library.
func isLibraryRef(ref ast.Ref) bool {
	return ref.HasPrefix(libraryRoot) || ref.HasPrefix(gatekeeperRoot)
}

// parseLibraries parses the libraries that policies may import.
func parseLibraries(libraries []Library) (map[string]*ast.Module, []Problem) {
	modules := make(map[string]*ast.Module, len(libraries))
	var problems []Problem
	for _, library := range libraries {
		module, err := ast.ParseModuleWithOpts(library.Name, library.Rego, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities})
		switch {
		case err != nil:
			problems = append(problems, problemsFromOPA(err)...)
		case !isLibraryRef(module.Package.Path):
			problems = append(problems, problemAt(module.Package.Loc(),
				"the package %s is not %s, %s or below one of them", module.Package.Path, libraryRoot, gatekeeperRoot))
		case library.Name == policyFile || modules[library.Name] != nil:
			problems = append(problems, Problem{Library: library.Name, Message: "a library needs a unique name"})
		default:
			modules[library.Name] = module
		}
	}
	return modules, sortProblems(problems)
}

// misspelledRules returns a warning for each rule that is unused in its module and whose
// name almost equals that of a known rule.
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
			problem := problemAt(rule.Loc(), "the rule %s is unused and has no meaning to Sluice; did you mean %s?", name, meant)
			problem.Kind = MisspelledRule
			problems = append(problems, problem)
		}
	}
	return problems
}

// similarRule returns the known rule whose name almost equals this one.
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
		for _, known := range ruleDefinitions {
			for _, suffix := range []string{"", "s", "y", "e"} {
				if stem == strings.TrimSuffix(known.name, suffix) {
					return known.name, true
				}
			}
		}
	}
	for _, known := range ruleDefinitions {
		if allowed := len(known.name) / 4; EditDistance(lower, known.name, allowed) <= allowed {
			return known.name, true
		}
	}
	return "", false
}
