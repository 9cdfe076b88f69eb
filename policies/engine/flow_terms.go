// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// scope is one branch of a rule while it is walked.
type scope struct {
	*flow
	// variables are what its variables can be.
	variables map[ast.Var]*values
	// bound are those that occurred before in this pass. A variable's first
	// occurrence may give it its value; all others compare.
	bound map[ast.Var]bool
	// repeated: the body may hold for several values of its variables.
	repeated bool
}

func (s *scope) variable(name ast.Var) *values {
	known := s.variables[name]
	if known == nil {
		known = &values{}
		s.variables[name] = known
	}
	return known
}

// free tells whether a term is a variable that has no value yet.
func (s *scope) free(term *ast.Term) (ast.Var, bool) {
	name, ok := term.Value.(ast.Var)
	if !ok || isDocument(name) || s.bound[name] {
		return "", false
	}
	return name, true
}

func isDocument(name ast.Var) bool {
	return name.Equal(ast.InputRootDocument.Value) || name.Equal(ast.DefaultRootDocument.Value)
}

// value is what a term can be. That it is there is read.
func (s *scope) value(term *ast.Term) *values {
	v := s.of(term)
	s.seen(v)
	return v
}

func (s *scope) of(term *ast.Term) *values {
	switch value := term.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String:
		return &values{}
	case ast.Var:
		switch {
		case value.Equal(ast.InputRootDocument.Value):
			return s.input()
		case isDocument(value):
			return s.unknown()
		}
		s.bound[value] = true
		return s.variable(value)
	case ast.Ref:
		return s.ref(value)
	case *ast.Array:
		c := s.compound(value)
		for i := range value.Len() {
			s.put(c, "", s.value(value.Elem(i)))
		}
		return held(c)
	case ast.Object:
		return s.object(value)
	case ast.Set:
		// Its elements are compared with each other.
		value.Foreach(func(element *ast.Term) { s.whole(s.value(element)) })
		return &values{}
	case *ast.ArrayComprehension:
		c := s.compound(value)
		s.within(value.Body, func() { s.put(c, "", s.value(value.Term)) })
		return held(c)
	case *ast.SetComprehension:
		s.within(value.Body, func() { s.whole(s.value(value.Term)) })
		return &values{}
	case *ast.ObjectComprehension:
		c := s.compound(value)
		s.within(value.Body, func() {
			s.whole(s.value(value.Key))
			// Of one key there may be several values, which must be the same.
			given := s.value(value.Value)
			s.whole(given)
			s.put(c, "", given)
		})
		return held(c)
	}
	return s.unknown()
}

func (s *scope) object(object ast.Object) *values {
	c := s.compound(object)
	object.Foreach(func(key, element *ast.Term) {
		name, ok := key.Value.(ast.String)
		if !ok || name == "" {
			s.whole(s.value(key))
			name = ""
		}
		s.put(c, string(name), s.value(element))
	})
	return held(c)
}

func (s *scope) input() *values {
	return &values{parts: map[*part]struct{}{s.root: {}}}
}

func (s *scope) ref(ref ast.Ref) *values {
	switch {
	case isInput(ref):
		return s.steps(s.input(), ref[1:])
	case isData(ref):
		return s.named(ref, s)
	}
	return s.steps(s.of(ref[0]), ref[1:])
}

// steps goes from a value to what is in it.
func (s *scope) steps(v *values, steps ast.Ref) *values {
	for _, step := range steps {
		name := ""
		if key, ok := step.Value.(ast.String); ok {
			name = string(key)
		} else if variable, ok := s.free(step); ok {
			// It becomes the key: of input those are read, and of what is composed they
			// were read when it was.
			s.bound[variable] = true
			s.repeated = true
		} else {
			s.whole(s.value(step))
		}
		v = s.step(v, name)
	}
	return v
}

// step goes to a field, or, where its name is empty, to all that it may be.
func (s *scope) step(v *values, name string) *values {
	next := &values{}
	for p := range v.parts {
		if p.whole {
			continue
		}
		under := s.under(p, name)
		if under != nil {
			if next.parts == nil {
				next.parts = make(map[*part]struct{})
			}
			next.parts[under] = struct{}{}
		}
	}
	for c := range v.compounds {
		for key, field := range c.fields {
			if name == "" || key == "" || key == name {
				merge(next, field)
			}
		}
	}
	return next
}

// merge adds without learning anything: the sum is for this pass only.
func merge(to, from *values) {
	for p := range from.parts {
		if to.parts == nil {
			to.parts = make(map[*part]struct{})
		}
		to.parts[p] = struct{}{}
	}
	for c := range from.compounds {
		if to.compounds == nil {
			to.compounds = make(map[*compound]struct{})
		}
		to.compounds[c] = struct{}{}
	}
}

// under is the part under another; nil where that one is then read whole.
func (f *flow) under(p *part, name string) *part {
	known := p.each
	if name != "" {
		known = p.fields[name]
	}
	if known != nil {
		return known
	}
	f.changed = true
	if p.depth >= maxDepthOfParts || f.parts >= maxParts {
		p.whole = true
		return nil
	}
	f.parts++
	known = &part{depth: p.depth + 1}
	switch {
	case name == "":
		p.each = known
	case p.fields == nil:
		p.fields = map[string]*part{name: known}
	default:
		p.fields[name] = known
	}
	return known
}

// compound is what is known of an array or object by where it is written.
func (f *flow) compound(place any) *compound {
	known := f.compounds[place]
	if known == nil {
		known = &compound{fields: make(map[string]*values)}
		f.compounds[place] = known
	}
	return known
}

func (f *flow) put(c *compound, name string, v *values) {
	field := c.fields[name]
	if field == nil {
		field = &values{}
		c.fields[name] = field
		f.changed = true
	}
	f.join(field, v)
	if c.read {
		f.whole(field)
	}
}

func held(c *compound) *values {
	return &values{compounds: map[*compound]struct{}{c: {}}}
}
