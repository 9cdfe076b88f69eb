// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// scope is one branch of a rule during a pass.
type scope struct {
	*dataFlow
	// variables are the values that its variables can have.
	variables map[ast.Var]*valueSet
	// bound are the variables that occurred before in this pass. The first occurrence of
	// a variable may bind it; later ones compare.
	bound map[ast.Var]bool
	// repeated: the body may hold for several values of its variables.
	repeated bool
}

func (s *scope) variable(name ast.Var) *valueSet {
	known := s.variables[name]
	if known == nil {
		known = &valueSet{}
		s.variables[name] = known
	}
	return known
}

// unboundVariable returns the name of a term that is a variable without a value.
func (s *scope) unboundVariable(term *ast.Term) (ast.Var, bool) {
	name, ok := term.Value.(ast.Var)
	if !ok || isRootDocument(name) || s.bound[name] {
		return "", false
	}
	return name, true
}

func isRootDocument(name ast.Var) bool {
	return name.Equal(ast.InputRootDocument.Value) || name.Equal(ast.DefaultRootDocument.Value)
}

// readTerm returns the values that a term can have, and records that the rules read
// whether it exists.
func (s *scope) readTerm(term *ast.Term) *valueSet {
	v := s.traceTerm(term)
	s.markPresence(v)
	return v
}

func (s *scope) traceTerm(term *ast.Term) *valueSet {
	switch value := term.Value.(type) {
	case ast.Null, ast.Boolean, ast.Number, ast.String:
		return &valueSet{}
	case ast.Var:
		switch {
		case value.Equal(ast.InputRootDocument.Value):
			return s.inputValues()
		case isRootDocument(value):
			return s.untraceable()
		}
		s.bound[value] = true
		return s.variable(value)
	case ast.Ref:
		return s.traceRef(value)
	case *ast.Array:
		c := s.compositeAt(value)
		for i := range value.Len() {
			s.setField(c, "", s.readTerm(value.Elem(i)))
		}
		return compositeValues(c)
	case ast.Object:
		return s.traceObject(value)
	case ast.Set:
		// OPA compares the elements of a set with each other.
		value.Foreach(func(element *ast.Term) { s.markWhole(s.readTerm(element)) })
		return &valueSet{}
	case *ast.ArrayComprehension:
		c := s.compositeAt(value)
		s.traceComprehension(value.Body, func() { s.setField(c, "", s.readTerm(value.Term)) })
		return compositeValues(c)
	case *ast.SetComprehension:
		s.traceComprehension(value.Body, func() { s.markWhole(s.readTerm(value.Term)) })
		return &valueSet{}
	case *ast.ObjectComprehension:
		c := s.compositeAt(value)
		s.traceComprehension(value.Body, func() {
			s.markWhole(s.readTerm(value.Key))
			// Several values of one key are compared: they must be equal.
			field := s.readTerm(value.Value)
			s.markWhole(field)
			s.setField(c, "", field)
		})
		return compositeValues(c)
	}
	return s.untraceable()
}

func (s *scope) traceObject(object ast.Object) *valueSet {
	c := s.compositeAt(object)
	object.Foreach(func(key, element *ast.Term) {
		name, ok := key.Value.(ast.String)
		if !ok || name == "" {
			s.markWhole(s.readTerm(key))
			name = ""
		}
		s.setField(c, string(name), s.readTerm(element))
	})
	return compositeValues(c)
}

func (s *scope) inputValues() *valueSet {
	return &valueSet{readSets: map[*readSet]struct{}{s.input: {}}}
}

func (s *scope) traceRef(ref ast.Ref) *valueSet {
	switch {
	case IsInputRef(ref):
		return s.followPath(s.inputValues(), ref[1:])
	case IsStoredDataRef(s.opa, ref):
		// The data is no part of input. Its keys are read, and may bind variables.
		return s.followPath(&valueSet{}, ref[2:])
	case IsDataRef(ref):
		return s.ruleValues(ref, s)
	}
	return s.followPath(s.traceTerm(ref[0]), ref[1:])
}

// followPath goes from a value to the values under it.
func (s *scope) followPath(v *valueSet, path ast.Ref) *valueSet {
	for _, step := range path {
		name := ""
		if key, ok := step.Value.(ast.String); ok {
			name = string(key)
		} else if variable, ok := s.unboundVariable(step); ok {
			// The variable is bound to the keys. The keys of input count as read; those
			// of a composite were read when it was composed.
			s.bound[variable] = true
			s.repeated = true
		} else {
			s.markWhole(s.readTerm(step))
		}
		v = s.followField(v, name)
	}
	return v
}

// followField goes to a field, or, if the name is empty, to all fields and elements.
func (s *scope) followField(v *valueSet, name string) *valueSet {
	next := &valueSet{}
	for p := range v.readSets {
		if p.whole {
			continue
		}
		under := s.childReadSet(p, name)
		if under != nil {
			if next.readSets == nil {
				next.readSets = make(map[*readSet]struct{})
			}
			next.readSets[under] = struct{}{}
		}
	}
	for c := range v.composites {
		for key, field := range c.fields {
			if name == "" || key == "" || key == name {
				addValues(next, field)
			}
		}
	}
	return next
}

// addValues adds values without recording a change: the sum lives for this pass only.
func addValues(to, from *valueSet) {
	for p := range from.readSets {
		if to.readSets == nil {
			to.readSets = make(map[*readSet]struct{})
		}
		to.readSets[p] = struct{}{}
	}
	for c := range from.composites {
		if to.composites == nil {
			to.composites = make(map[*composite]struct{})
		}
		to.composites[c] = struct{}{}
	}
}

// childReadSet returns the set under another; nil if that one is now read whole.
func (f *dataFlow) childReadSet(p *readSet, name string) *readSet {
	known := p.elements
	if name != "" {
		known = p.fields[name]
	}
	if known != nil {
		return known
	}
	f.changed = true
	if p.depth >= maxReadSetDepth || f.readSetCount >= maxReadSets {
		p.whole = true
		return nil
	}
	f.readSetCount++
	known = &readSet{depth: p.depth + 1}
	switch {
	case name == "":
		p.elements = known
	case p.fields == nil:
		p.fields = map[string]*readSet{name: known}
	default:
		p.fields[name] = known
	}
	return known
}

// compositeAt returns the composite at a place in the module.
func (f *dataFlow) compositeAt(place any) *composite {
	known := f.composites[place]
	if known == nil {
		known = &composite{fields: make(map[string]*valueSet)}
		f.composites[place] = known
	}
	return known
}

func (f *dataFlow) setField(c *composite, name string, v *valueSet) {
	field := c.fields[name]
	if field == nil {
		field = &valueSet{}
		c.fields[name] = field
		f.changed = true
	}
	f.join(field, v)
	if c.readWhole {
		f.markWhole(field)
	}
}

func compositeValues(c *composite) *valueSet {
	return &valueSet{composites: map[*composite]struct{}{c: {}}}
}
