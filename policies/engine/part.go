// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// part is what rules read of one part of input: a tree in the shape of what is
// read, down to the fields of the elements of lists.
//
// Of a part that is only seen it is read whether it is there, whether it is null,
// true or false, and else only if it is a text, a number, an array or an object.
type part struct {
	// whole: everything of it is read.
	whole bool
	// seen: whether it is there is read, and what it is.
	seen bool
	// each is what is read of all its elements or fields, and with it how many they
	// are and the fields' names; nil where it is not gone through.
	each *part
	// fields are what is read of fields whose names are written out.
	fields map[string]*part
	// names are those of the fields, sorted. Only what settle returned has them.
	names []string
	depth int
}

const (
	// maxDepthOfParts is how deep parts are told apart; what is deeper is read whole.
	maxDepthOfParts = 12
	// maxParts bounds what is told apart for one question of a policy.
	maxParts = 2048
)

// settle returns the part in its final form: nothing is said twice, and what is
// read of each is said of every field that is named too.
func (p *part) settle() *part {
	if p.whole {
		return &part{whole: true, seen: true}
	}
	s := &part{seen: p.seen || p.each != nil}
	if p.each != nil {
		s.each = p.each.settle()
	}
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		field := p.fields[name]
		if p.each != nil {
			field = union(field, p.each)
		}
		if s.fields == nil {
			s.fields = make(map[string]*part)
		}
		s.fields[name] = field.settle()
		s.names = append(s.names, name)
	}
	return s
}

// union is what is read by either of two readers.
func union(a, b *part) *part {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	u := &part{whole: a.whole || b.whole, seen: a.seen || b.seen, each: union(a.each, b.each)}
	for _, fields := range []map[string]*part{a.fields, b.fields} {
		for name, field := range fields {
			if u.fields == nil {
				u.fields = make(map[string]*part)
			}
			u.fields[name] = union(u.fields[name], field)
		}
	}
	return u
}

// signature is a text that only parts have that read the same.
func (p *part) signature(b *strings.Builder) {
	switch {
	case p.whole:
		b.WriteByte('*')
		return
	case p.seen:
		b.WriteByte('?')
	}
	if p.each != nil {
		b.WriteByte('[')
		p.each.signature(b)
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

// piece is a part that is read, and where in input it is: at a path that is
// written out.
type piece struct {
	path inputPath
	part *part
}

// name tells pieces apart.
func (p *piece) name() string {
	var b strings.Builder
	for _, step := range p.path {
		b.WriteString(strconv.Quote(step))
	}
	b.WriteByte(' ')
	p.part.signature(&b)
	return b.String()
}

// pieces cuts what is read of input into pieces, so that policies that read the
// same share them. It reports false where no piece can be told: all of input is
// read. A policy's parameters are its own, and so the same each time.
func (p *part) pieces() ([]piece, bool) {
	if p.whole || p.each != nil {
		return nil, false
	}
	var found []piece
	var cut func(path inputPath, p *part)
	cut = func(path inputPath, p *part) {
		if p.whole || p.each != nil {
			found = append(found, piece{path, p})
			return
		}
		if p.seen {
			found = append(found, piece{path, &part{seen: true}})
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
