// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// readSet describes what rules read of one value. It is a tree in the shape of the
// value, down to the fields of list elements.
//
// presence alone covers whether the value exists and whether it is null, true or false.
// Of a string, number, array or object it covers the type only.
type readSet struct {
	// whole: the rules read all of it.
	whole bool
	// presence: the rules read whether it exists, and its type.
	presence bool
	// elements is what the rules read of every element or field. With it they read the
	// number of elements and the names of fields. nil: the rules never iterate over it.
	elements *readSet
	// fields are what the rules read of fields with constant names.
	fields map[string]*readSet
	// names are the keys of fields, sorted. Only normalize sets them.
	names []string
	depth int
}

const (
	// maxReadSetDepth is the depth from which on a value is read whole.
	maxReadSetDepth = 12
	// maxReadSets limits the nodes of one tree.
	maxReadSets = 2048
)

// normalize returns the set in its final form: without duplicates, and with what the
// rules read of every field merged into each named field.
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

// union returns what at least one of two readers reads.
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

// at returns the set of a field, which it adds if it is missing.
func (p *readSet) at(field string) *readSet {
	if p.fields == nil {
		p.fields = make(map[string]*readSet)
	}
	if p.fields[field] == nil {
		p.fields[field] = &readSet{}
	}
	return p.fields[field]
}

// writeSignature writes a text that is unique to normalized sets that read the same.
func (p *readSet) writeSignature(b *strings.Builder) {
	switch {
	case p.whole:
		b.WriteByte('*')
		return
	case p.presence:
		b.WriteByte('?')
	}
	if p.elements != nil {
		b.WriteByte('[')
		p.elements.writeSignature(b)
		b.WriteByte(']')
	}
	for _, name := range p.names {
		b.WriteByte('.')
		b.WriteString(strconv.Quote(name))
		b.WriteByte('{')
		p.fields[name].writeSignature(b)
		b.WriteByte('}')
	}
}

// elementReads returns what the rules read of every element or field; nil if they
// never iterate over the value.
func (p *readSet) elementReads() *readSet {
	if p.whole {
		return p
	}
	return p.elements
}
