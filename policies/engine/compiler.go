// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"sluice.dev/policies/engine/dependency"
)

// module is a policy's compiled Rego, without its match and parameters.
type module struct {
	// rules are the known rules that the module defines.
	rules ruleSet
	// volatile are the rules that may read the time or the present use.
	volatile ruleSet
	// footprints are the paths in input that the rules for each kind of request name.
	footprints [requestKindCount]dependency.Footprint
	// segments are the parts of input that decide the result of each kind of request; nil
	// if its results cannot be cached.
	segments [requestKindCount][]dependency.Segment
	// reads are the same parts, of policies too whose results are not cached. traced reports for which
	// kinds of request they are known.
	reads  [requestKindCount][]dependency.Segment
	traced [requestKindCount]bool
	// warnings are probable errors, for the author.
	warnings []Problem
	// queries evaluate the rules for each kind of request; nil if there are none.
	queries [requestKindCount]*rego.PreparedEvalQuery
	// dataReads are what the rules for each kind of request read of data.config and data.objects; nil if
	// nothing.
	dataReads [requestKindCount]*DataReads
}

// compiler compiles each module separately: the time for one large compiler grows with
// the square of their number, and modules could see each other.
type compiler struct {
	libraries map[string]*ast.Module
	// builtIn are the compiled built-in policies, by their text.
	builtIn *Cache[string, *compilation]
}

// compilers are those of all engines, by their libraries: tools make an engine for each case, with the same built-in policies.
var compilers = NewCache[string, *compiler](4, 4<<20)

// newCompiler returns a compiler with libraries, which must compile.
func newCompiler(libraries []Library) (*compiler, []Problem) {
	key := fmt.Sprintf("%q", libraries)
	if c, ok := compilers.Get(key); ok {
		return c, nil
	}
	modules, problems := parseLibraries(libraries)
	if len(problems) > 0 {
		return nil, problems
	}
	c := &compiler{libraries: modules, builtIn: NewCache[string, *compilation](64, 4<<20)}
	if compiled, problems := c.compileModules(modules, true, nil); len(problems) > 0 {
		return nil, problems
	} else if problems := validateReferences(compiled); len(problems) > 0 {
		return nil, sortProblems(problems)
	}
	compilers.Put(key, c, len(key))
	return c, nil
}

// compileBuiltIn compiles a built-in policy, which imports none of the libraries of teams.
func (c *compiler) compileBuiltIn(text string) (*module, []Problem) {
	compiled, ok := c.builtIn.Get(text)
	if !ok {
		compiled = &compilation{}
		compiled.module, compiled.problems = c.compile(text, nil)
		c.builtIn.Put(text, compiled, len(text))
	}
	return compiled.module, compiled.problems
}

// compile compiles one policy with the libraries that it imports. It returns either a module or every problem
// found.
func (c *compiler) compile(text string, imported []*teamLibrary) (compiled *module, problems []Problem) {
	// A policy's text must never end the process, whatever it does to OPA's compiler.
	defer func() {
		if cause := recover(); cause != nil {
			compiled, problems = nil, []Problem{{Message: fmt.Sprintf("the compiler panicked: %v", cause)}}
		}
		if compiled == nil && len(problems) == 0 {
			problems = []Problem{{Message: "the module does not compile"}}
		}
	}()
	p, problems := parseModule(text)
	if p.module == nil {
		return nil, sortProblems(problems)
	}
	problems = append(problems, packageClashes(p.module, imported)...)
	opa, wrong := c.compileModules(c.withLibraries(policyFile, p.module, imported), !p.gatekeeper, nil)
	problems = append(problems, wrong...)
	if opa != nil {
		problems = append(problems, validateReferences(opa)...)
		problems = append(problems, validateReads(opa, p.module.Package.Path, p.rules)...)
		problems = append(problems, validateDataReads(opa, p.module.Package.Path, p.rules)...)
	}
	if len(problems) > 0 || opa == nil {
		return nil, sortProblems(problems)
	}
	compiled = &module{rules: p.rules, warnings: misspelledRules(p.module)}
	if p.rules == 0 {
		compiled.warnings = append(compiled.warnings, problemAt(p.module.Package.Loc(),
			"the policy defines no rule that Sluice evaluates, so it has no effect"))
	}
	pkg := p.module.Package.Path
	compiled.warnings = sortProblems(append(compiled.warnings, dataWarnings(opa, pkg, p.rules)...))
	compiled.volatile = volatileRules(opa, pkg, p.rules)
	for kind := range requestKindCount {
		var refs []ast.Ref
		for rule := range p.rules.ofKind(kind).all() {
			refs = append(refs, ruleRef(pkg, rule))
		}
		compiled.footprints[kind] = dependency.NewFootprint(opa, refs)
		compiled.dataReads[kind] = newDataReads(opa, refs)
		segments, ok := dependency.Segments(opa, refs)
		if ok {
			compiled.reads[kind] = segments
		}
		compiled.traced[kind] = ok
		// Results that depend on the time or the present use are not cached.
		if volatile := kind == admissionRequest && compiled.volatile != 0; ok && !volatile && len(segments) <= maxKeySegments {
			compiled.segments[kind] = append(make([]dependency.Segment, 0, len(segments)), segments...)
		}
	}
	for kind := range requestKindCount {
		query, err := prepareQuery(opa, pkg, p.rules.ofKind(kind))
		if err != nil {
			return nil, problemsFromOPA(err)
		}
		compiled.queries[kind] = query
	}
	return compiled, nil
}

// withLibraries returns the modules to compile: that of a file, the libraries that it imports, and those of
// Sluice if one of them refers to these.
func (c *compiler) withLibraries(file string, module *ast.Module, imported []*teamLibrary) map[string]*ast.Module {
	modules := map[string]*ast.Module{file: module}
	for _, library := range imported {
		modules[library.file()] = library.module
	}
	needed := false
	for _, module := range modules {
		ast.WalkRefs(module, func(ref ast.Ref) bool {
			needed = needed || c.mayServe(ref)
			return needed
		})
	}
	if needed {
		maps.Copy(modules, c.libraries)
	}
	return modules
}

// mayServe reports whether a reference leads into a library of Sluice, or to several of them.
func (c *compiler) mayServe(ref ast.Ref) bool {
	if !isLibraryRef(ref) {
		return false
	}
	for _, library := range c.libraries {
		if ref.HasPrefix(library.Package.Path) || library.Package.Path.HasPrefix(ref.ConstantPrefix()) {
			return true
		}
	}
	return false
}

func (c *compiler) compileModules(modules map[string]*ast.Module, strict bool, schemas *ast.SchemaSet) (*ast.Compiler, []Problem) {
	allowed := capabilities
	if !strict {
		allowed = capabilitiesV0
	}
	opa := ast.NewCompiler().
		WithCapabilities(allowed).
		WithDefaultRegoVersion(ast.RegoV1).
		WithStrict(strict).
		WithEnablePrintStatements(false).
		WithSchemas(schemas).
		SetErrorLimit(maxProblems)
	opa.Compile(modules)
	if opa.Failed() {
		return nil, problemsFromOPA(opa.Errors)
	}
	return opa, nil
}

// prepareQuery prepares one query for these rules, which binds each to its name; nil if
// there are none. A rule with a single value is wrapped in a comprehension, which is
// defined even where the rule is not.
func prepareQuery(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) (*rego.PreparedEvalQuery, error) {
	var body ast.Body
	for rule := range rules.all() {
		value := ast.NewTerm(ruleRef(pkg, rule))
		if !ruleDefinitions[rule].isSet {
			element := ast.VarTerm("value")
			value = ast.ArrayComprehensionTerm(element, ast.NewBody(ast.Equality.Expr(element, value)))
		}
		binding := ast.Equality.Expr(ast.VarTerm(ruleDefinitions[rule].name), value)
		// The query returns the variable only, not the expression.
		binding.Generated = true
		body.Append(binding)
	}
	if body == nil {
		return nil, nil
	}
	query, err := rego.New(
		rego.Compiler(opa),
		rego.ParsedQuery(body),
		rego.Store(dataStore{}),
		rego.StrictBuiltinErrors(true),
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	).PrepareForEval(context.Background())
	if err != nil {
		return nil, err
	}
	return &query, nil
}

// forbiddenBuiltins are the built-in functions that policies do not have, with the reason
// for the author. A name that ends in a dot is a whole family.
var forbiddenBuiltins = map[string]string{
	"http.send":                 "policies have no network; read input instead",
	"net.":                      "policies have no network",
	"time.now_ns":               "policies have no clock; the time of the request is input.now",
	"rand.":                     "a policy must give the same answer twice",
	"uuid.rfc4122":              "a policy must give the same answer twice",
	"opa.runtime":               "policies cannot read the host's environment",
	"trace":                     "evaluations are not traced",
	"rego.parse_module":         "policies cannot parse policies",
	"io.jwt.":                   "policies evaluate objects, not tokens",
	"providers.":                "policies cannot sign requests",
	"crypto.x509.":              "policies evaluate objects, not certificates",
	"crypto.parse_private_keys": "policies evaluate objects, not keys",
	"graphql.":                  "policies evaluate objects, not queries",
	"json.match_schema":         "a schema may be fetched from elsewhere; compare fields instead",
	"json.verify_schema":        "a schema may be fetched from elsewhere; compare fields instead",
	"graph.reachable_paths":     "it takes exponential time; use graph.reachable",
	"product":                   "it can take longer than a policy may, and cannot be stopped; multiply with *",
	"regex.globs_match":         "it takes exponential time; use regex.match or glob.match",
	"strings.render_template":   "its loops cannot be stopped; use sprintf or a template string",
	"bits.lsh":                  "it takes memory without limit; multiply by a power of two",
	"internal.test_case":        "it is for tests",
}

// forbiddenReason returns why policies do not have a built-in function.
func forbiddenReason(name string) (string, bool) {
	if why, ok := forbiddenBuiltins[name]; ok {
		return why, true
	}
	for family, why := range forbiddenBuiltins {
		if strings.HasSuffix(family, ".") && strings.HasPrefix(name, family) {
			return why, true
		}
	}
	return "", false
}

// capabilities are the functions and the language version of policies; those of v0 are
// for Gatekeeper's templates.
var (
	capabilities   = newCapabilities(ast.RegoV1)
	capabilitiesV0 = newCapabilities(ast.RegoV0)
)

func newCapabilities(version ast.RegoVersion) *ast.Capabilities {
	all := ast.CapabilitiesForThisVersion(ast.CapabilitiesRegoVersion(version))
	all.Builtins = slices.DeleteFunc(all.Builtins, func(builtin *ast.Builtin) bool {
		_, forbidden := forbiddenReason(builtin.Name)
		return forbidden
	})
	// Policies are Rego v1 and cannot opt in to later versions.
	all.Features = slices.DeleteFunc(all.Features, func(feature string) bool {
		return feature == ast.FeatureRegoV2 || feature == ast.FeatureRegoV2Import
	})
	all.AllowNet = []string{}
	return all
}

// UnitTestCapabilities returns the functions of unit tests: those of policies, and the one that OPA's test runner inserts.
func UnitTestCapabilities() *ast.Capabilities {
	of := *capabilities
	of.Builtins = append(slices.Clone(of.Builtins), ast.BuiltinMap["internal.test_case"])
	return &of
}
