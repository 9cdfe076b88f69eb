// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"

	"sluice.dev/policies/engine/dependency"
)

// module is a policy's compiled Rego, without its match and parameters.
type module struct {
	// rules are the known rules that it defines.
	rules ruleSet
	// volatile are those of them that may read the time or the present use.
	volatile ruleSet
	// footprints is what the rules that answer each question read of input, by the names
	// that are written out.
	footprints [requestKindCount]dependency.Footprint
	// segments are the parts of input that an answer to each question follows from;
	// nil where answers cannot be remembered by them.
	segments [requestKindCount][]dependency.Segment
	// warnings are what its author should look at.
	warnings []Problem
	// queries ask each question; nil where the module has no rule that answers it.
	queries [requestKindCount]*rego.PreparedEvalQuery
}

// compiler compiles modules, each by itself: one big compiler would take time in
// the square of their number, and let them see each other.
type compiler struct {
	libraries map[string]*ast.Module
}

// newCompiler returns a compiler with libraries, which must compile.
func newCompiler(libraries []Library) (*compiler, []Problem) {
	modules, problems := parseLibraries(libraries)
	if len(problems) > 0 {
		return nil, problems
	}
	c := &compiler{libraries: modules}
	if compiled, problems := c.compileModules(modules, true); len(problems) > 0 {
		return nil, problems
	} else if problems := validateReferences(compiled); len(problems) > 0 {
		return nil, sortProblems(problems)
	}
	return c, nil
}

// compile compiles one policy's text. It returns nil and every problem found
// where there is one.
func (c *compiler) compile(text string) (compiled *module, problems []Problem) {
	// Policies are written by hand and compiled by code that is not ours: whatever
	// a text does to it must not end the process.
	defer func() {
		if fault := recover(); fault != nil {
			compiled, problems = nil, []Problem{{Message: fmt.Sprintf("the compiler failed: %v", fault)}}
		}
		if compiled == nil && len(problems) == 0 {
			problems = []Problem{{Message: "the module does not compile"}}
		}
	}()
	p, problems := parseModule(text)
	if p.module == nil {
		return nil, sortProblems(problems)
	}
	opa, wrong := c.compileModules(c.withLibraries(p.module), !p.gatekeeper)
	problems = append(problems, wrong...)
	if opa != nil {
		problems = append(problems, validateReferences(opa)...)
		problems = append(problems, validateReads(opa, p.module.Package.Path, p.rules)...)
	}
	if len(problems) > 0 || opa == nil {
		return nil, sortProblems(problems)
	}
	compiled = &module{rules: p.rules, warnings: misspelledRules(p.module)}
	if p.rules == 0 {
		compiled.warnings = append(compiled.warnings, problemAt(p.module.Package.Loc(), "the policy defines no rule with a meaning, and does nothing"))
	}
	compiled.warnings = sortProblems(compiled.warnings)
	pkg := p.module.Package.Path
	compiled.volatile = volatileRules(opa, pkg, p.rules)
	for kind := range requestKindCount {
		query, err := prepareQuery(opa, pkg, p.rules.ofKind(kind))
		if err != nil {
			return nil, problemsFromOPA(err)
		}
		compiled.queries[kind] = query
		var refs []ast.Ref
		for rule := range p.rules.ofKind(kind).all() {
			refs = append(refs, ruleRef(pkg, rule))
		}
		compiled.footprints[kind] = dependency.NewFootprint(opa, refs)
		segments, ok := dependency.Segments(opa, refs)
		// Results that depend on the time or the present use are not cached.
		if volatile := kind == admissionRequest && compiled.volatile != 0; ok && !volatile && len(segments) <= maxKeySegments {
			compiled.segments[kind] = append(make([]dependency.Segment, 0, len(segments)), segments...)
		}
	}
	return compiled, nil
}

// withLibraries returns the modules to compile: the policy's, and the libraries
// where it speaks of them.
func (c *compiler) withLibraries(own *ast.Module) map[string]*ast.Module {
	modules := map[string]*ast.Module{policyFile: own}
	needed := false
	ast.WalkRefs(own, func(ref ast.Ref) bool {
		needed = needed || isLibraryRef(ref)
		return needed
	})
	if needed {
		maps.Copy(modules, c.libraries)
	}
	return modules
}

func (c *compiler) compileModules(modules map[string]*ast.Module, strict bool) (*ast.Compiler, []Problem) {
	with := capabilities
	if !strict {
		with = capabilitiesV0
	}
	opa := ast.NewCompiler().
		WithCapabilities(with).
		WithDefaultRegoVersion(ast.RegoV1).
		WithStrict(strict).
		WithEnablePrintStatements(false).
		SetErrorLimit(maxProblems)
	opa.Compile(modules)
	if opa.Failed() {
		return nil, problemsFromOPA(opa.Errors)
	}
	return opa, nil
}

// prepareQuery makes one query of all known rules that answer a question. Each is bound to its
// name; a rule that has one value is asked for in a comprehension, which is
// there even where the rule is undefined.
func prepareQuery(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) (*rego.PreparedEvalQuery, error) {
	var body ast.Body
	for rule := range rules.all() {
		value := ast.NewTerm(ruleRef(pkg, rule))
		if !ruleDefinitions[rule].isSet {
			element := ast.VarTerm("value")
			value = ast.ArrayComprehensionTerm(element, ast.NewBody(ast.Equality.Expr(element, value)))
		}
		binding := ast.Equality.Expr(ast.VarTerm(ruleDefinitions[rule].name), value)
		// Only its variable is asked for, not the expression.
		binding.Generated = true
		body.Append(binding)
	}
	if body == nil {
		return nil, nil
	}
	query, err := rego.New(
		rego.Compiler(opa),
		rego.ParsedQuery(body),
		rego.Store(emptyStore{}),
		rego.StrictBuiltinErrors(true),
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	).PrepareForEval(context.Background())
	if err != nil {
		return nil, err
	}
	return &query, nil
}

// forbiddenBuiltins are the built-in functions that policies do not have, each with the
// reason that its author is told. A name that ends in a dot is a family.
var forbiddenBuiltins = map[string]string{
	"http.send":                 "policies have no network; what they need is in input",
	"net.":                      "policies have no network",
	"time.now_ns":               "policies have no clock; the time of the request is input.now",
	"rand.":                     "a policy must give the same answer twice",
	"uuid.rfc4122":              "a policy must give the same answer twice",
	"opa.runtime":               "policies know nothing of the host",
	"trace":                     "evaluations are not traced",
	"rego.parse_module":         "a policy does not parse policies",
	"io.jwt.":                   "a policy judges objects, not tokens",
	"providers.":                "a policy signs no requests",
	"crypto.x509.":              "a policy judges objects, not certificates",
	"crypto.parse_private_keys": "a policy judges objects, not keys",
	"graphql.":                  "a policy judges objects, not queries",
	"json.match_schema":         "a schema may be fetched from elsewhere; compare fields instead",
	"json.verify_schema":        "a schema may be fetched from elsewhere; compare fields instead",
	"graph.reachable_paths":     "it takes exponential time; use graph.reachable",
	"regex.globs_match":         "it takes exponential time; use regex.match or glob.match",
	"strings.render_template":   "its loops cannot be stopped; use sprintf or a template string",
	"bits.lsh":                  "it takes memory without limit; multiply by a power of two",
	"internal.test_case":        "it is for tests",
}

// forbiddenReason tells why a built-in function is not to be had.
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

// capabilities are the functions and the language of policies; those of v0 are
// for Gatekeeper's templates.
var (
	capabilities   = newCapabilities(ast.RegoV1)
	capabilitiesV0 = newCapabilities(ast.RegoV0)
)

func newCapabilities(version ast.RegoVersion) *ast.Capabilities {
	all := ast.CapabilitiesForThisVersion(ast.CapabilitiesRegoVersion(version))
	all.Builtins = slices.DeleteFunc(all.Builtins, func(builtin *ast.Builtin) bool {
		_, gone := forbiddenReason(builtin.Name)
		return gone
	})
	// Policies are Rego v1: what a later version means by the same text is not
	// theirs to choose.
	all.Features = slices.DeleteFunc(all.Features, func(feature string) bool {
		return feature == ast.FeatureRegoV2 || feature == ast.FeatureRegoV2Import
	})
	all.AllowNet = []string{}
	return all
}

// emptyStore is a store without data: what policies see as data are their own rules
// and the libraries. Having no state, it needs no locks and no transactions.
type emptyStore struct {
	storage.WritesNotSupported
	storage.PolicyNotSupported
	storage.TriggersNotSupported
}

// emptyTransaction is the one transaction.
type emptyTransaction struct{}

func (emptyTransaction) ID() uint64 { return 0 }

var errNoData = &storage.Error{Code: storage.NotFoundErr, Message: "there is no data"}

func (emptyStore) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return emptyTransaction{}, nil
}

func (emptyStore) Read(context.Context, storage.Transaction, storage.Path) (any, error) {
	return nil, errNoData
}

func (emptyStore) Commit(context.Context, storage.Transaction) error { return nil }

func (emptyStore) Abort(context.Context, storage.Transaction) {}

func (emptyStore) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errors.New("there is nothing to truncate")
}

// ListPolicies returns none: OPA asks while it prepares a query.
func (emptyStore) ListPolicies(context.Context, storage.Transaction) ([]string, error) {
	return nil, nil
}
