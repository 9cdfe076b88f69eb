// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// within walks the body of a comprehension, which may hold several times without
// that being said of the body that it is in.
func (s *scope) within(body ast.Body, then func()) {
	repeated := s.repeated
	s.body(body)
	then()
	s.repeated = repeated
}

func (s *scope) body(body ast.Body) {
	for _, expr := range body {
		s.expr(expr)
	}
}

func (s *scope) expr(expr *ast.Expr) {
	if len(expr.With) > 0 {
		s.unknown()
		return
	}
	switch terms := expr.Terms.(type) {
	case *ast.Term:
		s.value(terms)
	case []*ast.Term:
		s.call(terms)
	case *ast.SomeDecl:
		for _, symbol := range terms.Symbols {
			if _, ok := symbol.Value.(ast.Var); !ok {
				s.unknown()
			}
		}
	case *ast.Every:
		domain := s.value(terms.Domain)
		elements := s.step(domain, "")
		s.within(nil, func() {
			if terms.Key != nil {
				s.bind(terms.Key, &values{})
			}
			s.bind(terms.Value, elements)
			s.body(terms.Body)
		})
	default:
		s.unknown()
	}
}

func (s *scope) call(terms []*ast.Term) {
	ref, ok := terms[0].Value.(ast.Ref)
	if !ok {
		s.unknown()
		return
	}
	operands := terms[1:]
	if isData(ref) {
		s.function(ref, operands)
		return
	}
	builtin := ast.BuiltinMap[ref.String()]
	switch {
	case builtin == nil || builtin.Decl.FuncArgs().Variadic != nil:
		s.unknown()
	case builtin.Name == ast.Equality.Name && len(operands) == 2:
		s.unify(operands[0], operands[1])
	default:
		arity := min(len(builtin.Decl.FuncArgs().Args), len(operands))
		s.repeated = s.repeated || builtin.Relation
		result := s.builtin(builtin.Name, operands[:arity])
		for _, operand := range operands[arity:] {
			s.bind(operand, result)
		}
	}
}

// builtin is what a built-in function returns. Most read all that they are given,
// and so nothing more is to be said of what they return.
func (s *scope) builtin(name string, operands []*ast.Term) *values {
	switch name {
	case ast.Count.Name, ast.ObjectKeys.Name:
		s.step(s.value(operands[0]), "")
		return &values{}
	case ast.ArrayConcat.Name:
		c := s.compound(operands[0])
		for _, operand := range operands {
			elements := s.step(s.value(operand), "")
			s.seen(elements)
			s.put(c, "", elements)
		}
		return held(c)
	case ast.ObjectGet.Name:
		if keys, ok := writtenOut(operands[1]); ok {
			found := s.steps(s.value(operands[0]), keys)
			s.seen(found)
			either := &values{}
			merge(either, found)
			merge(either, s.value(operands[2]))
			return either
		}
	}
	for _, operand := range operands {
		s.whole(s.value(operand))
	}
	return &values{}
}

// writtenOut are the steps that object.get is told to go, where it is one string
// or an array of them.
func writtenOut(term *ast.Term) (ast.Ref, bool) {
	switch value := term.Value.(type) {
	case ast.String:
		return ast.Ref{term}, true
	case *ast.Array:
		var steps ast.Ref
		for i := range value.Len() {
			if _, ok := value.Elem(i).Value.(ast.String); !ok {
				return nil, false
			}
			steps = append(steps, value.Elem(i))
		}
		return steps, true
	}
	return nil, false
}

// function follows operands into a function of a policy's or a library's, and its
// result out of it.
func (s *scope) function(ref ast.Ref, operands []*ast.Term) {
	given := make([]*values, len(operands))
	rules := rulesOf(s.opa, ref)
	if len(rules) == 0 {
		s.unknown()
		return
	}
	arity := len(rules[0].Head.Args)
	if arity == 0 || len(operands) < arity || len(operands) > arity+1 {
		s.unknown()
		return
	}
	for i := range arity {
		given[i] = s.value(operands[i])
	}
	result := &values{}
	for _, rule := range rules {
		if len(rule.Head.Args) != arity || len(rule.Head.Ref()) != 1 || !rule.Ref().Equal(ref) {
			s.unknown()
			return
		}
		known := s.rule(rule)
		for i := range arity {
			s.join(known.arguments[i], given[i])
		}
		merge(result, known.result)
	}
	if len(operands) > arity {
		s.bind(operands[arity], result)
	}
}

// unify makes two terms the same: a variable that has no value yet gets one, all
// else is compared.
func (s *scope) unify(a, b *ast.Term) {
	if _, ok := s.free(a); ok {
		s.bind(a, s.value(b))
		return
	}
	if _, ok := s.free(b); ok || isPattern(b) {
		s.bind(b, s.value(a))
		return
	}
	s.bind(a, s.value(b))
}

// isPattern tells whether a term may hold variables that are to get values.
func isPattern(term *ast.Term) bool {
	switch term.Value.(type) {
	case *ast.Array, ast.Object:
		return true
	}
	return false
}

// bind makes a term the same as a value.
func (s *scope) bind(term *ast.Term, v *values) {
	if name, ok := s.free(term); ok {
		s.bound[name] = true
		s.join(s.variable(name), v)
		return
	}
	switch pattern := term.Value.(type) {
	case *ast.Array:
		elements := s.step(v, "")
		s.seen(v)
		s.seen(elements)
		for i := range pattern.Len() {
			s.bind(pattern.Elem(i), elements)
		}
	case ast.Object:
		s.step(v, "")
		s.seen(v)
		pattern.Foreach(func(key, element *ast.Term) {
			name, ok := key.Value.(ast.String)
			if !ok || name == "" {
				s.whole(v)
				s.whole(s.value(key))
				name = ""
			}
			field := s.step(v, string(name))
			s.seen(field)
			s.bind(element, field)
		})
	default:
		s.whole(v)
		s.whole(s.value(term))
	}
}
