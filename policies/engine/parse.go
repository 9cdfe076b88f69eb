// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
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

// parsed is a module that was read.
type parsed struct {
	// module is nil where the compiler must not see it.
	module *ast.Module
	rules  ruleSet
	// gatekeeper: the module is Rego v0, a template of Gatekeeper's.
	gatekeeper bool
}

// parse reads a policy's module and checks what can be seen without compiling.
func parse(text string) (parsed, []Problem) {
	if len(text) > maxSource {
		return parsed{}, []Problem{{Message: fmt.Sprintf("the module has %d bytes; %d are allowed: split the policy", len(text), maxSource)}}
	}
	if !utf8.ValidString(text) {
		return parsed{}, []Problem{{Message: "the module is not UTF-8 text"}}
	}
	p := parsed{}
	module, err := ast.ParseModuleWithOpts(ownFile, text, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities})
	if err != nil {
		old, oldErr := ast.ParseModuleWithOpts(ownFile, text, ast.ParserOptions{RegoVersion: ast.RegoV0, Capabilities: capabilitiesV0})
		if oldErr != nil {
			return parsed{}, fromOPA(err)
		}
		if rules, _ := checkShapes(old, true); rules != 1<<ruleViolation {
			return parsed{}, append(fromOPA(err), Problem{
				Line: 1, Column: 1,
				Message: "the module is Rego v0, which only a Gatekeeper template may be: rewrite it with opa fmt --v0-v1 --write",
			})
		}
		module, p.gatekeeper = old, true
	}
	p.module = module
	var problems []Problem
	if module.Package.Path.HasPrefix(sluiceRoot) {
		problems = append(problems, at(module.Package.Loc(), "the package %s is Sluice's own; choose another name", module.Package.Path))
	}
	if problem, ok := tooNested(module); ok {
		return parsed{}, append(problems, problem)
	}
	rules, wrong := checkShapes(module, p.gatekeeper)
	p.rules = rules
	problems = append(problems, wrong...)
	return p, append(problems, outOfReach(module)...)
}

// outOfReach finds the functions that policies do not have and the fields that
// input does not have. The compiler would find the former too, but stop there.
func outOfReach(module *ast.Module) []Problem {
	// A name that the module gives a meaning is no built-in function's.
	own := make(map[ast.Value]bool)
	for _, rule := range module.Rules {
		own[ast.Var(topName(rule))] = true
	}
	for _, imported := range module.Imports {
		own[imported.Name()] = true
	}
	var problems []Problem
	for _, rule := range module.Rules {
		walkRefs(rule, func(ref ast.Ref, location *ast.Location) {
			name := ref.String()
			if why, ok := refusal(name); ok && ast.BuiltinMap[name] != nil && !own[ref[0].Value] {
				problems = append(problems, at(location, "%s is not to be had in a policy: %s", name, why))
			} else if wrong := missingField(ref); wrong != "" {
				problems = append(problems, at(location, "%s", wrong))
			}
		})
	}
	return problems
}

// tooNested finds the first rule that nests too deep.
func tooNested(module *ast.Module) (Problem, bool) {
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
			return at(rule.Loc(), "the rule %s nests too deep: split it into rules of their own", topName(rule)), true
		}
	}
	return Problem{}, false
}

// isLibrary tells whether a ref leads to a library.
func isLibrary(ref ast.Ref) bool {
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
			problems = append(problems, fromOPA(err)...)
		case !isLibrary(module.Package.Path):
			problems = append(problems, at(module.Package.Loc(), "the package %s is not %s, %s or below one of them", module.Package.Path, libraryRoot, gatekeeperRoot))
		case library.Name == ownFile || modules[library.Name] != nil:
			problems = append(problems, Problem{Library: library.Name, Message: "a library needs a name of its own"})
		default:
			modules[library.Name] = module
		}
	}
	return modules, inOrder(problems)
}
