// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// readSet is what rules read of one part of input: a tree in the shape of what is
// read, down to the fields of the elements of lists.
//
// Of a part that is only seen it is read whether it is there, whether it is null,
// true or false, and else only if it is a text, a number, an array or an object.
type readSet struct {
	// whole: everything of it is read.
	whole bool
	// presence: whether it is there is read, and what it is.
	presence bool
	// elements is what is read of all its elements or fields, and with it how many they
	// are and the fields' names; nil where it is not gone through.
	elements *readSet
	// fields are what is read of fields whose names are written out.
	fields map[string]*readSet
	// names are those of the fields, sorted. Only what settle returned has them.
	names []string
	depth int
}

const (
	// maxReadSetDepth is how deep parts are told apart; what is deeper is read whole.
	maxReadSetDepth = 12
	// maxReadSets bounds what is told apart for one question of a policy.
	maxReadSets = 2048
)

// normalize returns the part in its final form: nothing is said twice, and what is
// read of each is said of every field that is named too.
func (p *readSet) normalize() *readSet {
	if p.whole {
		return &readSet{whole: true, presence: true}
	}
	s := &readSet{presence: p.presence || p.elements != nil}
	if p.elements != nil {
		s.elements = p.elements.normalize()
	}
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		field := p.fields[name]
		if p.elements != nil {
			field = union(field, p.elements)
		}
		if s.fields == nil {
			s.fields = make(map[string]*readSet)
		}
		s.fields[name] = field.normalize()
		s.names = append(s.names, name)
	}
	return s
}

// union is what is read by either of two readers.
func union(a, b *readSet) *readSet {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	u := &readSet{whole: a.whole || b.whole, presence: a.presence || b.presence, elements: union(a.elements, b.elements)}
	for _, fields := range []map[string]*readSet{a.fields, b.fields} {
		for name, field := range fields {
			if u.fields == nil {
				u.fields = make(map[string]*readSet)
			}
			u.fields[name] = union(u.fields[name], field)
		}
	}
	return u
}

// signature is a text that only parts have that read the same.
func (p *readSet) signature(b *strings.Builder) {
	switch {
	case p.whole:
		b.WriteByte('*')
		return
	case p.presence:
		b.WriteByte('?')
	}
	if p.elements != nil {
		b.WriteByte('[')
		p.elements.signature(b)
		b.WriteByte(']')
	}
	for _, name := range p.names {
		b.WriteByte('.')
		b.WriteString(strconv.Quote(name))
		b.WriteByte('{')
		p.fields[name].signature(b)
		b.WriteByte('}')
	}
}

// keySegment is a part that is read, and where in input it is: at a path that is
// written out.
type keySegment struct {
	path  inputPath
	reads *readSet
}

// id tells pieces apart.
func (p *keySegment) id() string {
	var b strings.Builder
	for _, step := range p.path {
		b.WriteString(strconv.Quote(step))
	}
	b.WriteByte(' ')
	p.reads.signature(&b)
	return b.String()
}

// segments cuts what is read of input into pieces, so that policies that read the
// same share them. It reports false where no piece can be told: all of input is
// read. A policy's parameters are its own, and so the same each time.
func (p *readSet) segments() ([]keySegment, bool) {
	if p.whole || p.elements != nil {
		return nil, false
	}
	var found []keySegment
	var cut func(path inputPath, p *readSet)
	cut = func(path inputPath, p *readSet) {
		if p.whole || p.elements != nil {
			found = append(found, keySegment{path, p})
			return
		}
		if p.presence {
			found = append(found, keySegment{path, &readSet{presence: true}})
		}
		for _, name := range p.names {
			cut(append(slices.Clone(path), name), p.fields[name])
		}
	}
	for _, name := range p.names {
		if name != parametersField {
			cut(inputPath{name}, p.fields[name])
		}
	}
	return found, true
}

// footprint is what the rules that answer one question read of input, all told.
type footprint struct {
	// paths are what is read, none under another.
	paths []inputPath
	// replacesInput tells that a rule puts something else in the place of input, or of
	// part of it, with the keyword with.
	replacesInput bool
}

// volatileRules returns those of a module's rules that read the time or the present
// use, or may.
func volatileRules(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) ruleSet {
	var momentary ruleSet
	for rule := range ruleCount {
		if rules.has(rule) && slices.ContainsFunc(collectReads(opa, ruleRef(pkg, rule)), func(read inputRead) bool { return read.volatile != "" }) {
			momentary.add(rule)
		}
	}
	return momentary
}

// newFootprint returns the footprint of a module's rules that answer a question.
func newFootprint(opa *ast.Compiler, pkg ast.Ref, rules ruleSet, asked requestKind) footprint {
	var f footprint
	for rule := range ruleCount {
		if !rules.has(rule) || ruleDefinitions[rule].request != asked {
			continue
		}
		for _, read := range collectReads(opa, ruleRef(pkg, rule)) {
			f.add(read.path)
		}
	}
	for _, module := range opa.Modules {
		ast.WalkWiths(module, func(with *ast.With) bool {
			if ref, ok := with.Target.Value.(ast.Ref); ok && isInputRef(ref) {
				f.replacesInput = true
			}
			return false
		})
	}
	return f
}

func (f *footprint) add(path inputPath) {
	for _, known := range f.paths {
		if path.hasPrefix(known) {
			return
		}
	}
	f.paths = slices.DeleteFunc(f.paths, func(known inputPath) bool { return known.hasPrefix(path) })
	f.paths = append(f.paths, path)
}

// overlaps tells whether what is at a path, or under it, or around it, is read.
func (f *footprint) overlaps(path inputPath) bool {
	return slices.ContainsFunc(f.paths, func(known inputPath) bool {
		return path.hasPrefix(known) || known.hasPrefix(path)
	})
}

// hasPrefix tells whether a path is another one or leads on from it.
func (p inputPath) hasPrefix(other inputPath) bool {
	return len(p) >= len(other) && slices.Equal(p[:len(other)], other)
}

// readSegments returns the parts of input that a module's rules for a question read;
// false where they cannot be told.
func readSegments(opa *ast.Compiler, pkg ast.Ref, rules ruleSet, asked requestKind, named footprint) ([]keySegment, bool) {
	var refs []ast.Ref
	for rule := range ruleCount {
		if rules.has(rule) && ruleDefinitions[rule].request == asked {
			refs = append(refs, ruleRef(pkg, rule))
		}
	}
	if read, ok := traceReads(opa, refs); ok {
		return read.segments()
	}
	if named.replacesInput {
		return nil, false
	}
	// What is not followed reads all that it names.
	read := &readSet{}
	for _, path := range named.paths {
		at := read
		for _, step := range path {
			if at.fields == nil {
				at.fields = make(map[string]*readSet)
			}
			if at.fields[step] == nil {
				at.fields[step] = &readSet{}
			}
			at = at.fields[step]
		}
		at.whole = true
	}
	return read.normalize().segments()
}
