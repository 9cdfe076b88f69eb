// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// traceComprehension walks the body of a comprehension. The body may hold several times,
// which says nothing about the body around it.
func (s *scope) traceComprehension(body ast.Body, then func()) {
	repeated := s.repeated
	s.traceBody(body)
	then()
	s.repeated = repeated
}

func (s *scope) traceBody(body ast.Body) {
	for _, expr := range body {
		s.traceExpr(expr)
	}
}

func (s *scope) traceExpr(expr *ast.Expr) {
	if len(expr.With) > 0 {
		s.untraceable()
		return
	}
	switch terms := expr.Terms.(type) {
	case *ast.Term:
		s.readTerm(terms)
	case []*ast.Term:
		s.traceCall(terms)
	case *ast.SomeDecl:
		for _, symbol := range terms.Symbols {
			if _, ok := symbol.Value.(ast.Var); !ok {
				s.untraceable()
			}
		}
	case *ast.Every:
		domain := s.readTerm(terms.Domain)
		elements := s.followField(domain, "")
		s.traceComprehension(nil, func() {
			if terms.Key != nil {
				s.bind(terms.Key, &valueSet{})
			}
			s.bind(terms.Value, elements)
			s.traceBody(terms.Body)
		})
	default:
		s.untraceable()
	}
}

func (s *scope) traceCall(terms []*ast.Term) {
	ref, ok := terms[0].Value.(ast.Ref)
	if !ok {
		s.untraceable()
		return
	}
	operands := terms[1:]
	if IsDataRef(ref) {
		s.traceFunction(ref, operands)
		return
	}
	builtin := ast.BuiltinMap[ref.String()]
	switch {
	case builtin == nil || builtin.Decl.FuncArgs().Variadic != nil:
		s.untraceable()
	case builtin.Name == ast.Equality.Name && len(operands) == 2:
		s.unify(operands[0], operands[1])
	default:
		arity := min(len(builtin.Decl.FuncArgs().Args), len(operands))
		s.repeated = s.repeated || builtin.Relation
		result := s.traceBuiltin(builtin.Name, operands[:arity])
		for _, operand := range operands[arity:] {
			s.bind(operand, result)
		}
	}
}

// traceBuiltin returns the values that a built-in function can return. Most functions
// read their operands whole, so their result needs no tracking.
func (s *scope) traceBuiltin(name string, operands []*ast.Term) *valueSet {
	switch name {
	case ast.Count.Name, ast.ObjectKeys.Name:
		s.followField(s.readTerm(operands[0]), "")
		return &valueSet{}
	case ast.ArrayConcat.Name:
		c := s.compositeAt(operands[0])
		for _, operand := range operands {
			elements := s.followField(s.readTerm(operand), "")
			s.markPresence(elements)
			s.setField(c, "", elements)
		}
		return compositeValues(c)
	case ast.ObjectGet.Name:
		if keys, ok := constantKeys(operands[1]); ok {
			found := s.followPath(s.readTerm(operands[0]), keys)
			s.markPresence(found)
			either := &valueSet{}
			addValues(either, found)
			addValues(either, s.readTerm(operands[2]))
			return either
		}
	}
	for _, operand := range operands {
		s.markWhole(s.readTerm(operand))
	}
	return &valueSet{}
}

// constantKeys returns the keys of object.get if they are one string or an array of
// strings.
func constantKeys(term *ast.Term) (ast.Ref, bool) {
	switch value := term.Value.(type) {
	case ast.String:
		return ast.Ref{term}, true
	case *ast.Array:
		var keys ast.Ref
		for i := range value.Len() {
			if _, ok := value.Elem(i).Value.(ast.String); !ok {
				return nil, false
			}
			keys = append(keys, value.Elem(i))
		}
		return keys, true
	}
	return nil, false
}

// traceFunction follows operands into a function of a policy or library, and its result
// out of it.
func (s *scope) traceFunction(ref ast.Ref, operands []*ast.Term) {
	arguments := make([]*valueSet, len(operands))
	rules := RulesAt(s.opa, ref)
	if len(rules) == 0 {
		s.untraceable()
		return
	}
	arity := len(rules[0].Head.Args)
	if arity == 0 || len(operands) < arity || len(operands) > arity+1 {
		s.untraceable()
		return
	}
	for i := range arity {
		arguments[i] = s.readTerm(operands[i])
	}
	result := &valueSet{}
	for _, rule := range rules {
		if len(rule.Head.Args) != arity || len(rule.Head.Ref()) != 1 || !rule.Ref().Equal(ref) {
			s.untraceable()
			return
		}
		known := s.traceRule(rule)
		for i := range arity {
			s.join(known.arguments[i], arguments[i])
		}
		addValues(result, known.result)
	}
	if len(operands) > arity {
		s.bind(operands[arity], result)
	}
}

// unify makes two terms equal: an unbound variable is bound, everything else is compared.
func (s *scope) unify(a, b *ast.Term) {
	if _, ok := s.unboundVariable(a); ok {
		s.bind(a, s.readTerm(b))
		return
	}
	if _, ok := s.unboundVariable(b); ok || isPattern(b) {
		s.bind(b, s.readTerm(a))
		return
	}
	s.bind(a, s.readTerm(b))
}

// isPattern reports whether a term may hold variables to bind.
func isPattern(term *ast.Term) bool {
	switch term.Value.(type) {
	case *ast.Array, ast.Object:
		return true
	}
	return false
}

// bind makes a term equal to a value.
func (s *scope) bind(term *ast.Term, v *valueSet) {
	if name, ok := s.unboundVariable(term); ok {
		s.bound[name] = true
		s.join(s.variable(name), v)
		return
	}
	switch pattern := term.Value.(type) {
	case *ast.Array:
		elements := s.followField(v, "")
		s.markPresence(v)
		s.markPresence(elements)
		for i := range pattern.Len() {
			s.bind(pattern.Elem(i), elements)
		}
	case ast.Object:
		s.followField(v, "")
		s.markPresence(v)
		pattern.Foreach(func(key, element *ast.Term) {
			name, ok := key.Value.(ast.String)
			if !ok || name == "" {
				s.markWhole(v)
				s.markWhole(s.readTerm(key))
				name = ""
			}
			field := s.followField(v, string(name))
			s.markPresence(field)
			s.bind(element, field)
		})
	default:
		s.markWhole(v)
		s.markWhole(s.readTerm(term))
	}
}
