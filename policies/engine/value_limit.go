// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"

	"sluice.dev/policies/engine/dependency"
)

// limitedValue is the function that [limitValues] calls for each value that a policy composes.
const limitedValue = "internal.value"

var limitedValueTerm = ast.NewTerm(ast.Ref{ast.VarTerm("internal"), ast.InternedTerm("value")})

const (
	// maxValueSize is the estimated size of a value that a policy composes, in bytes.
	maxValueSize = 4 << 20
	// compositeBytes is what a list, object or set adds to the size of a value. Comparing two lists takes
	// about a kilobyte of stack for each list or object in them.
	compositeBytes = 128
	// minRememberedSize is the size from which on a value is measured only once.
	minRememberedSize = 4 << 10
)

// limitedValueFunction returns its operand, or an error if the operand is too large.
var limitedValueFunction = rego.Function1(
	&rego.Function{Name: limitedValue, Decl: types.NewFunction(types.Args(types.A), types.A)},
	func(ctx rego.BuiltinContext, value *ast.Term) (*ast.Term, error) {
		var sizes valueSizes
		if evaluation, ok := ctx.Cancel.(*policyEvaluation); ok {
			sizes = evaluation.sizes
		}
		if sizes.size(value, maxValueSize) > maxValueSize {
			return nil, fmt.Errorf("the value is too large: it would take more than %d MiB written out", maxValueSize>>20)
		}
		return value, nil
	},
)

// valueSizes are the sizes of the large values of one evaluation, so that each is measured once.
type valueSizes map[ast.Value]int

// size returns about how many bytes a value takes as text, as far as it is at most a limit.
func (s valueSizes) size(term *ast.Term, limit int) int {
	size := compositeBytes
	add := func(term *ast.Term) bool {
		size += s.size(term, limit-size)
		return size > limit
	}
	switch value := term.Value.(type) {
	case ast.String:
		return 8 + len(value)
	case *ast.Array, ast.Object, ast.Set:
		if known, ok := s[value]; ok {
			return known
		}
		switch value := value.(type) {
		case *ast.Array:
			value.Until(add)
		case ast.Set:
			value.Until(add)
		case ast.Object:
			value.Until(func(key, value *ast.Term) bool { return add(key) || add(value) })
		}
		if s != nil && minRememberedSize <= size && size <= limit {
			s[value] = size
		}
		return size
	}
	return 8
}

// limitValues rewrites the rules of a compiled policy so that each value that they compose is checked
// when it is made: arrays, objects, sets, comprehensions, and sets and objects of partial rules.
//
// A value can contain another one several times, and that one a third, so that forty short lines make a
// value of 2^40 elements. OPA cannot be stopped while it copies or compares two of them: it takes
// memory until the process ends, and comparing lists takes stack for each element. Since every value is
// checked before another one contains it, none is ever larger than what one of them adds.
//
// It runs after everything that analyzes the rules.
func limitValues(opa *ast.Compiler) {
	l := &valueLimiter{opa: opa}
	for _, module := range opa.Modules {
		for _, rule := range module.Rules {
			for branch := rule; branch != nil; branch = branch.Else {
				if !branch.Default {
					l.rewriteRule(branch)
				}
			}
		}
	}
}

type valueLimiter struct {
	opa       *ast.Compiler
	variables int
}

func (l *valueLimiter) rewriteRule(rule *ast.Rule) {
	known := ast.NewVarSet()
	for _, argument := range rule.Head.Args {
		known.Update(variablesOf(argument))
	}
	head := rule.Head
	yielded := []**ast.Term{&head.Key, &head.Value}
	for i := 1; i < len(head.Reference); i++ {
		yielded = append(yielded, &head.Reference[i])
	}
	rule.Body = l.rewriteClosure(rule.Body, known, yielded...)
}

// rewriteClosure returns a body whose expressions, and the terms that it yields (nil for none), are limited.
func (l *valueLimiter) rewriteClosure(body ast.Body, known ast.VarSet, yielded ...**ast.Term) ast.Body {
	exprs := l.rewriteBody(body, known)
	for _, term := range yielded {
		if *term != nil {
			*term = l.limit(&exprs, nil, *term, known)
		}
	}
	return ast.NewBody(exprs...)
}

// rewriteBody returns the expressions of a body, and adds their variables to the known ones, which have a
// value.
func (l *valueLimiter) rewriteBody(body ast.Body, known ast.VarSet) []*ast.Expr {
	exprs := make([]*ast.Expr, 0, len(body))
	for _, expr := range body {
		l.rewriteExpr(&exprs, expr, known)
		exprs = append(exprs, expr)
		if !expr.Negated {
			known.Update(variablesOf(expr))
		}
	}
	return exprs
}

// rewriteExpr replaces the terms of an expression, and adds the expressions that precede it.
func (l *valueLimiter) rewriteExpr(before *[]*ast.Expr, expr *ast.Expr, known ast.VarSet) {
	switch terms := expr.Terms.(type) {
	case *ast.Every:
		inner := known.Copy()
		inner.Update(variablesOf(terms.Value))
		if terms.Key != nil {
			inner.Update(variablesOf(terms.Key))
		}
		terms.Body = ast.NewBody(l.rewriteBody(terms.Body, inner)...)
	case *ast.Not:
		terms.Body = ast.NewBody(l.rewriteBody(terms.Body, known.Copy())...)
	case []*ast.Term:
		// Other functions have limits of their own, and none returns more than its operands.
		ref, ok := terms[0].Value.(ast.Ref)
		switch {
		case ok && (expr.IsEquality() || dependency.IsDataRef(ref)):
			for i := 1; i < len(terms); i++ {
				terms[i] = l.limit(before, expr.With, terms[i], known)
			}
		case ok && ref.Equal(ast.ArrayConcat.Ref()) && len(terms) == 4 && !expr.Negated:
			joined := l.newVariable(terms[3])
			call := ast.NewExpr([]*ast.Term{terms[0], terms[1], terms[2], joined}).SetLocation(expr.Location)
			call.With = expr.With
			*before = append(*before, call)
			expr.Terms = ast.Equality.Expr(terms[3], l.check(before, joined)).Terms
		}
	}
}

// limit returns a variable that has the value of a term and is checked. A pattern, which has variables
// without a value, stays, and the values in it are replaced.
func (l *valueLimiter) limit(before *[]*ast.Expr, with []*ast.With, term *ast.Term, known ast.VarSet) *ast.Term {
	switch value := term.Value.(type) {
	case *ast.ArrayComprehension:
		value.Body = l.rewriteClosure(value.Body, known.Copy(), &value.Term)
		return l.assign(before, with, term)
	case *ast.SetComprehension:
		value.Body = l.rewriteClosure(value.Body, known.Copy(), &value.Term)
		return l.assign(before, with, term)
	case *ast.ObjectComprehension:
		value.Body = l.rewriteClosure(value.Body, known.Copy(), &value.Key, &value.Value)
		return l.assign(before, with, term)
	case ast.Ref:
		if dependency.IsDataRef(value) && l.readsWhole(value) {
			return l.assign(before, with, term)
		}
		return term
	case *ast.Array, ast.Object, ast.Set:
		if term.IsGround() {
			return term
		}
		if variablesOf(term).DiffCount(known) == 0 {
			return l.check(before, term)
		}
	}
	limited := func(term *ast.Term) *ast.Term { return l.limit(before, with, term, known) }
	switch value := term.Value.(type) {
	case *ast.Array:
		elements := make([]*ast.Term, value.Len())
		for i := range elements {
			elements[i] = limited(value.Elem(i))
		}
		return ast.NewTerm(ast.NewArray(elements...)).SetLocation(term.Location)
	case ast.Object:
		var pairs [][2]*ast.Term
		value.Foreach(func(key, element *ast.Term) { pairs = append(pairs, [2]*ast.Term{key, limited(element)}) })
		return ast.NewTerm(ast.NewObject(pairs...)).SetLocation(term.Location)
	}
	return term
}

// readsWhole reports whether a reference leads to all of a set or object of partial rules, or to a package.
func (l *valueLimiter) readsWhole(ref ast.Ref) bool {
	return slices.ContainsFunc(dependency.RulesAt(l.opa, ref), func(rule *ast.Rule) bool {
		length := len(rule.Ref())
		if rule.Head.RuleKind() == ast.MultiValue {
			length++
		}
		return len(ref) < length
	})
}

// assign evaluates a term, and returns a variable with its checked value.
func (l *valueLimiter) assign(before *[]*ast.Expr, with []*ast.With, term *ast.Term) *ast.Term {
	variable := l.newVariable(term)
	assignment := ast.Equality.Expr(variable, term).SetLocation(term.Location)
	assignment.With = with
	*before = append(*before, assignment)
	return l.check(before, variable)
}

// check returns a variable with the checked value of a term.
func (l *valueLimiter) check(before *[]*ast.Expr, term *ast.Term) *ast.Term {
	variable := l.newVariable(term)
	call := ast.NewExpr([]*ast.Term{limitedValueTerm, term, variable}).SetLocation(term.Location)
	*before = append(*before, call)
	return variable
}

// newVariable returns a variable with a name that no policy can write.
func (l *valueLimiter) newVariable(term *ast.Term) *ast.Term {
	l.variables++
	return ast.VarTerm("value#" + strconv.Itoa(l.variables)).SetLocation(term.Location)
}

// variablesOf returns the variables of an expression or term, without those of comprehensions and of every.
func variablesOf(node any) ast.VarSet {
	visitor := ast.NewVarVisitor().WithParams(ast.VarVisitorParams{SkipClosures: true, SkipRefCallHead: true})
	visitor.Walk(node)
	variables := visitor.Vars()
	delete(variables, ast.InputRootDocument.Value.(ast.Var))
	delete(variables, ast.DefaultRootDocument.Value.(ast.Var))
	return variables
}
