// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
)

// The comparison operators, by the names of OPA's functions.
const (
	equal          = "=="
	notEqual       = "!="
	less           = "<"
	lessOrEqual    = "<="
	greater        = ">"
	greaterOrEqual = ">="
	member         = "in"
)

var operators = map[string]string{
	ast.Equality.Name: equal, ast.Equal.Name: equal, ast.NotEqual.Name: notEqual, ast.LessThan.Name: less,
	ast.LessThanEq.Name: lessOrEqual, ast.GreaterThan.Name: greater, ast.GreaterThanEq.Name: greaterOrEqual, ast.Member.Name: member,
}

// mirrored are the operators with their operands exchanged.
var mirrored = map[string]string{
	equal: equal, notEqual: notEqual, less: greater, greater: less, lessOrEqual: greaterOrEqual, greaterOrEqual: lessOrEqual,
}

// condition is a comparison of a reference or variable with constants.
type condition struct {
	// key identifies the left side in its body.
	key      string
	operator string
	// values are the constants; several with the operator in only.
	values []ast.Value
	expr   *ast.Expr
}

// bodyTerms are the terms that a body gives its variables.
type bodyTerms struct {
	// assigned has the terms of x := term, and elements those of some x in term.
	assigned, elements map[ast.Var]*ast.Term
}

func termsOf(body ast.Body) bodyTerms {
	terms := bodyTerms{make(map[ast.Var]*ast.Term), make(map[ast.Var]*ast.Term)}
	for _, expr := range body {
		if expr.IsAssignment() && len(expr.Operands()) == 2 {
			if name, ok := expr.Operand(0).Value.(ast.Var); ok {
				terms.assigned[name] = expr.Operand(1)
			}
		}
		declared, ok := expr.Terms.(*ast.SomeDecl)
		if !ok || len(declared.Symbols) != 1 {
			continue
		}
		if call, ok := declared.Symbols[0].Value.(ast.Call); ok && len(call) >= 3 {
			if name, ok := call[len(call)-2].Value.(ast.Var); ok {
				terms.elements[name] = call[len(call)-1]
			}
		}
	}
	return terms
}

// maxAssignments limits how many assignments are followed from a variable.
const maxAssignments = 8

// resolve returns the term that a variable was assigned, or the term itself.
func (t bodyTerms) resolve(term *ast.Term) *ast.Term {
	for range maxAssignments {
		name, ok := term.Value.(ast.Var)
		if !ok || t.assigned[name] == nil {
			break
		}
		term = t.assigned[name]
	}
	return term
}

// comparison returns the operator and the operands of an expression that compares them.
func (t bodyTerms) comparison(expr *ast.Expr) (operator string, left, right *ast.Term, ok bool) {
	if expr.IsNegated() || len(expr.With) > 0 || len(expr.Operands()) != 2 {
		return "", nil, nil, false
	}
	operator, ok = operators[expr.Operator().String()]
	return operator, t.resolve(expr.Operand(0)), t.resolve(expr.Operand(1)), ok
}

// conditions returns the comparisons with constants in a body.
func (t bodyTerms) conditions(body ast.Body) []condition {
	var all []condition
	for _, expr := range body {
		operator, left, right, ok := t.comparison(expr)
		if !ok {
			continue
		}
		if isScalar(left) && !isScalar(right) && mirrored[operator] != "" {
			operator, left, right = mirrored[operator], right, left
		}
		one := condition{key: left.String(), operator: operator, expr: expr}
		switch value := left.Value.(type) {
		case ast.Ref:
			if slices.ContainsFunc(value, isWildcard) {
				continue // each _ is another element
			}
		case ast.Var:
		default:
			continue
		}
		switch {
		case operator == member:
			one.values = scalarsOf(right)
		case isScalar(right):
			one.values = []ast.Value{right.Value}
		}
		if len(one.values) > 0 {
			all = append(all, one)
		}
	}
	return all
}

func isWildcard(term *ast.Term) bool {
	name, ok := term.Value.(ast.Var)
	return ok && name.IsWildcard()
}

func isScalar(term *ast.Term) bool {
	switch term.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String:
		return true
	}
	return false
}

// scalarsOf returns the elements of a list or set of constants; none if it has others.
func scalarsOf(term *ast.Term) (values []ast.Value) {
	constant := true
	collect := func(element *ast.Term) {
		constant = constant && isScalar(element)
		values = append(values, element.Value)
	}
	switch collection := term.Value.(type) {
	case *ast.Array:
		collection.Foreach(collect)
	case ast.Set:
		collection.Foreach(collect)
	}
	if !constant {
		return nil
	}
	return values
}

// holds reports whether a comparison of two constants is true.
func holds(left ast.Value, operator string, right ast.Value) bool {
	order := left.Compare(right)
	switch operator {
	case equal:
		return order == 0
	case notEqual:
		return order != 0
	case less:
		return order < 0
	case lessOrEqual:
		return order <= 0
	case greater:
		return order > 0
	case greaterOrEqual:
		return order >= 0
	}
	return true
}

// exclude reports whether two conditions on the same value are never true together.
func exclude(a, b condition) bool {
	switch {
	case a.hasValues() && b.hasValues():
		return !slices.ContainsFunc(a.values, func(v ast.Value) bool {
			return slices.ContainsFunc(b.values, func(w ast.Value) bool { return v.Compare(w) == 0 })
		})
	case b.hasValues():
		return exclude(b, a)
	case a.hasValues():
		return !slices.ContainsFunc(a.values, func(v ast.Value) bool { return holds(v, b.operator, b.values[0]) })
	case a.isLower() && b.isUpper():
		order := a.values[0].Compare(b.values[0])
		return order > 0 || order == 0 && (a.operator == greater || b.operator == less)
	case a.isUpper() && b.isLower():
		return exclude(b, a)
	}
	return false
}

// hasValues reports whether the condition lists the values that it allows.
func (c condition) hasValues() bool { return c.operator == equal || c.operator == member }

func (c condition) isLower() bool { return c.operator == greater || c.operator == greaterOrEqual }

func (c condition) isUpper() bool { return c.operator == less || c.operator == lessOrEqual }

// lintConditions finds conditions that are never, or always, true.
func (p *policyLinter) lintConditions() {
	ast.WalkBodies(p.module, func(body ast.Body) bool {
		terms := termsOf(body)
		for _, expr := range body {
			p.lintConstant(terms, expr)
			p.lintTypes(terms, expr)
		}
		conditions := terms.conditions(body)
		for i, one := range conditions {
			p.lintKind(one)
			for _, other := range conditions[:i] {
				if one.key == other.key && exclude(one, other) {
					p.at(contradiction, one.expr.Location, "%s is never true after %s (line %d): the rule never fires; "+
						"write two rules if either is enough", sourceText(one.expr), sourceText(other.expr),
						p.folder.RegoPlace(p.policy.Name, other.expr.Location.Row, 1).Line)
					break
				}
			}
		}
		return false
	})
	ast.WalkRefs(p.module, func(ref ast.Ref) bool {
		if strings.HasPrefix(ref.String(), "input.oldObject") || strings.HasPrefix(ref.String(), "input.review.oldObject") {
			p.at(noOldObject, ref[0].Location, "policies are evaluated for new objects only, which have no %s: it is always null or undefined",
				ref[:min(len(ref), 2)])
			return true
		}
		return false
	})
}

// lintConstant finds expressions that are false whatever the input is.
func (p *policyLinter) lintConstant(terms bodyTerms, expr *ast.Expr) {
	if term, ok := expr.Terms.(*ast.Term); ok && term.Equal(ast.BooleanTerm(false)) && !expr.IsNegated() {
		p.at(contradiction, expr.Location, "false is never true: the rule never fires")
		return
	}
	operator, left, right, ok := terms.comparison(expr)
	if ok && operator != member && isScalar(left) && isScalar(right) && !holds(left.Value, operator, right.Value) {
		p.at(contradiction, expr.Location, "%s compares %s with %s, and is never true: the rule never fires", sourceText(expr), left, right)
	}
}

// kindKeys are the references to an object's kind.
var kindKeys = []string{"input.object.kind", "input.review.object.kind", "input.review.kind.kind"}

// lintKind finds conditions on kinds and operations for which the policy is not evaluated.
func (p *policyLinter) lintKind(c condition) {
	if !c.hasValues() {
		return
	}
	matched, what := []string{string(v1alpha1.OperationCreate)}, "new objects (CREATE)"
	switch {
	case slices.Contains(kindKeys, c.key):
		matched = nil
		for _, kind := range p.policy.Spec.Match.Kinds {
			name, _, _ := strings.Cut(kind, ".")
			matched = append(matched, name)
		}
		if len(matched) == 0 {
			matched = []string{"Pod"}
		}
		what = "kind " + strings.Join(matched, ", ") + " (spec.match.kinds)"
	case c.key != "input.review.operation":
		return
	}
	for _, value := range c.values {
		if text, ok := value.(ast.String); ok && slices.Contains(matched, string(text)) {
			return
		}
	}
	p.at(excludedKind, c.expr.Location, "%s is never true: the policy is evaluated for %s only", sourceText(c.expr), what)
}

// sourceText returns the source of an expression on one line.
func sourceText(expr *ast.Expr) string {
	text := expr.String()
	if expr.Location != nil && len(expr.Location.Text) > 0 {
		text = string(expr.Location.Text)
	}
	return strings.Join(strings.Fields(text), " ")
}
