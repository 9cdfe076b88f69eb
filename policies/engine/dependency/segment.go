// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine/document"
)

// Segment is one part of input that rules read: a constant path, and what they read of
// the value there.
type Segment struct {
	// Path leads to the value.
	Path  Path
	reads *readSet
}

// Segments returns the parts of input that decide the result of the rules under these
// references. It returns false if the rules may read all of input. The policy's own
// parameters are left out: they are the same at every evaluation.
func Segments(opa *ast.Compiler, refs []ast.Ref) ([]Segment, bool) {
	if reads, ok := traceReads(opa, refs); ok {
		return reads.segments()
	}
	footprint := NewFootprint(opa, refs)
	if footprint.replacesInput {
		return nil, false
	}
	// Rules that the analysis cannot follow count as reading all that they name.
	reads := &readSet{}
	for _, path := range footprint.paths {
		at := reads
		for _, key := range path {
			at = at.at(key)
		}
		at.whole = true
	}
	return reads.normalize().segments()
}

// segments splits a set into parts, so that policies that read the same part share it.
func (p *readSet) segments() ([]Segment, bool) {
	if p.whole || p.elements != nil {
		return nil, false
	}
	var segments []Segment
	var split func(path Path, p *readSet)
	split = func(path Path, p *readSet) {
		if p.whole || p.elements != nil {
			segments = append(segments, Segment{path, p})
			return
		}
		if p.presence {
			segments = append(segments, Segment{path, &readSet{presence: true}})
		}
		for _, name := range p.names {
			split(append(slices.Clone(path), name), p.fields[name])
		}
	}
	for _, name := range p.names {
		if name != ParametersField {
			split(Path{name}, p.fields[name])
		}
	}
	return segments, true
}

// ID returns a text that is unique to this segment.
func (s *Segment) ID() string {
	var b strings.Builder
	for _, key := range s.Path {
		b.WriteString(strconv.Quote(key))
	}
	b.WriteByte(' ')
	s.reads.writeSignature(&b)
	return b.String()
}

// Absent is the value of a path that does not exist.
type Absent struct{}

// AppendKey appends what the rules read of the value at the segment's path. Values that
// differ in what the rules read have different bytes.
func (s *Segment) AppendKey(to []byte, value any) []byte { return appendRead(to, value, s.reads) }

// appendRead encodes a value with its type first and its length before its content.
func appendRead(to []byte, value any, p *readSet) []byte {
	switch value := value.(type) {
	case Absent:
		return append(to, 'u')
	case nil:
		return append(to, '0')
	case bool:
		if value {
			return append(to, 't')
		}
		return append(to, 'f')
	case string:
		return p.appendScalar(append(to, 's'), value)
	case int64, json.Number, float64:
		return p.appendScalar(append(to, 'n'), document.FormatNumber(value))
	case []any:
		return appendArray(append(to, 'a'), value, p)
	case map[string]any:
		return appendObject(append(to, 'o'), value, p)
	}
	// The caller composed the object of other Go types: encode what policies see.
	return appendText(append(to, '?'), document.NewTerm(value).String())
}

// appendScalar appends a string or number if more than its type is read. To iterate
// over a string is to count its letters.
func (p *readSet) appendScalar(to []byte, text string) []byte {
	if p.elementReads() == nil {
		return to
	}
	return appendText(to, text)
}

func appendArray(to []byte, array []any, p *readSet) []byte {
	each := p.elementReads()
	if each == nil {
		return to
	}
	to = binary.AppendUvarint(to, uint64(len(array)))
	for _, element := range array {
		to = appendRead(to, element, each)
	}
	return to
}

func appendObject(to []byte, object map[string]any, p *readSet) []byte {
	each := p.elementReads()
	if each == nil {
		for _, name := range p.names {
			field, ok := object[name]
			if !ok {
				field = Absent{}
			}
			to = appendRead(to, field, p.fields[name])
		}
		return to
	}
	to = binary.AppendUvarint(to, uint64(len(object)))
	names := make([]string, 0, 16)
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		reads := each
		if named, ok := p.fields[name]; ok {
			reads = named
		}
		to = appendRead(appendText(to, name), object[name], reads)
	}
	return to
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}
