// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
)

// maxPieces is how many pieces of input an answer may follow from and still be
// remembered by them.
const maxPieces = 96

// cutting cuts one input into the pieces that policies read: each as bytes that
// no input has that reads otherwise there. Policies that read the same share
// them.
type cutting struct {
	input  *bound
	pieces []piece
	// cut has each piece that was asked for.
	cut [][]byte
	// text is a buffer.
	text []byte
}

func (b *bound) cutBy(pieces []piece) *cutting {
	return &cutting{input: b, pieces: pieces, cut: make([][]byte, len(pieces))}
}

// key appends pieces to a key.
func (c *cutting) key(key []byte, places []int) []byte {
	for _, place := range places {
		if c.cut[place] == nil {
			c.cut[place] = c.piece(&c.pieces[place])
		}
		key = append(key, c.cut[place]...)
	}
	return key
}

// piece is the bytes of a piece, or, where they are many, a byte that none begins
// with and their SHA-256.
func (c *cutting) piece(p *piece) []byte {
	c.text = appendRead(c.text[:0], c.input.find(p.path), p.part)
	if len(c.text) <= 2*sha256.Size {
		return append([]byte(nil), c.text...)
	}
	sum := sha256.Sum256(c.text)
	return append([]byte{'#'}, sum[:]...)
}

// undefined is what is not there.
type undefined struct{}

// find returns the value at a path.
func (b *bound) find(path inputPath) any {
	field := b.field(path[0])
	if field.Absent() {
		return undefined{}
	}
	value := field.value()
	for _, step := range path[1:] {
		object, ok := value.(map[string]any)
		if !ok {
			return undefined{}
		}
		if value, ok = object[step]; !ok {
			return undefined{}
		}
	}
	return value
}

// appendRead appends what is read of a value. From the bytes and the part follows
// all that a reader of the part may see: each value begins with its kind, and
// says how long it is.
func appendRead(to []byte, value any, p *part) []byte {
	switch value := value.(type) {
	case undefined:
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
		return p.appendScalar(append(to, 'n'), numberText(value))
	case []any:
		return appendArray(append(to, 'a'), value, p)
	case map[string]any:
		return appendObject(append(to, 'o'), value, p)
	}
	// Another of Go's types: what policies see of it tells it apart.
	return appendText(append(to, '?'), termOf(value).String())
}

// appendScalar appends a text or number where more of it is read than that it is
// one: going through a text is to count its letters.
func (p *part) appendScalar(to []byte, text string) []byte {
	if p.ofEach() == nil {
		return to
	}
	return appendText(to, text)
}

func appendArray(to []byte, array []any, p *part) []byte {
	each := p.ofEach()
	if each == nil {
		return to
	}
	to = binary.AppendUvarint(to, uint64(len(array)))
	for _, element := range array {
		to = appendRead(to, element, each)
	}
	return to
}

func appendObject(to []byte, object map[string]any, p *part) []byte {
	each := p.ofEach()
	if each == nil {
		for _, name := range p.names {
			field, ok := object[name]
			if !ok {
				field = undefined{}
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
		read := each
		if named, ok := p.fields[name]; ok {
			read = named
		}
		to = appendRead(appendText(to, name), object[name], read)
	}
	return to
}

// ofEach is what is read of every element or field; nil where they are not gone
// through.
func (p *part) ofEach() *part {
	if p.whole {
		return p
	}
	return p.each
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}
