// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"

	"sluice.dev/policies/engine/cache"
	"sluice.dev/policies/merge"
)

// resultCache keeps a policy's latest answers to one question by the pieces of input
// that they follow from.
//
// A policy has no clock, no chance and no data: the same pieces give the same
// answer. Which pieces it reads is known when it is compiled. So pods that differ
// in nothing that a policy reads are asked about once. What is remembered is
// shared by all who are given it, and never changed.
type resultCache = cache.Cache[[sha256.Size]byte, policyResult]

// maxCacheBytes is how many bytes the answers of one generation of a memory take
// at most, about.
const maxCacheBytes = 1 << 20

func newResultCache(entries int) *resultCache {
	return cache.New[[sha256.Size]byte, policyResult](entries, maxCacheBytes)
}

// size is how many bytes an answer takes, about.
func (a *policyResult) size() int {
	size := 256
	for _, complaints := range [][]merge.Finding{a.deny, a.violation, a.warn} {
		for _, c := range complaints {
			size += 64 + len(c.Message) + len(c.Field) + len(c.Fix)
		}
	}
	size += valueSize(a.changes.Defaults) + valueSize(a.changes.Overrides)
	for _, node := range a.changes.Nodes {
		size += 64 + len(node.Key)
		for _, value := range node.Values {
			size += 16 + len(value)
		}
	}
	for _, addition := range a.changes.Append {
		size += valueSize([]any(addition.Path)) + valueSize(addition.Value)
	}
	for _, path := range a.changes.Remove {
		size += valueSize([]any(path))
	}
	return size
}

func valueSize(value any) int {
	size := 16
	switch value := value.(type) {
	case string:
		size += len(value)
	case []any:
		for _, element := range value {
			size += valueSize(element)
		}
	case map[string]any:
		for key, element := range value {
			size += 32 + len(key) + valueSize(element)
		}
	}
	return size
}

// maxKeySegments is how many pieces of input an answer may follow from and still be
// remembered by them.
const maxKeySegments = 96

// keyBuilder cuts one input into the pieces that policies read: each as bytes that
// no input has that reads otherwise there. Policies that read the same share
// them.
type keyBuilder struct {
	input    *boundInput
	segments []keySegment
	// encoded has each piece that was asked for.
	encoded [][]byte
	// buffer is a buffer.
	buffer []byte
}

func (b *boundInput) newKeyBuilder(pieces []keySegment) *keyBuilder {
	return &keyBuilder{input: b, segments: pieces, encoded: make([][]byte, len(pieces))}
}

// appendKey appends pieces to a key.
func (c *keyBuilder) appendKey(key []byte, places []int) []byte {
	for _, place := range places {
		if c.encoded[place] == nil {
			c.encoded[place] = c.encodeSegment(&c.segments[place])
		}
		key = append(key, c.encoded[place]...)
	}
	return key
}

// encodeSegment is the bytes of a piece, or, where they are many, a byte that none begins
// with and their SHA-256.
func (c *keyBuilder) encodeSegment(p *keySegment) []byte {
	c.buffer = appendRead(c.buffer[:0], c.input.valueAt(p.path), p.reads)
	if len(c.buffer) <= 2*sha256.Size {
		return append([]byte(nil), c.buffer...)
	}
	sum := sha256.Sum256(c.buffer)
	return append([]byte{'#'}, sum[:]...)
}

// absentValue is what is not there.
type absentValue struct{}

// valueAt returns the value at a path.
func (b *boundInput) valueAt(path inputPath) any {
	field := b.field(path[0])
	if field.IsAbsent() {
		return absentValue{}
	}
	value := field.value()
	for _, step := range path[1:] {
		object, ok := value.(map[string]any)
		if !ok {
			return absentValue{}
		}
		if value, ok = object[step]; !ok {
			return absentValue{}
		}
	}
	return value
}

// appendRead appends what is read of a value. From the bytes and the part follows
// all that a reader of the part may see: each value begins with its kind, and
// says how long it is.
func appendRead(to []byte, value any, p *readSet) []byte {
	switch value := value.(type) {
	case absentValue:
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
		return p.appendScalar(append(to, 'n'), formatNumber(value))
	case []any:
		return appendArray(append(to, 'a'), value, p)
	case map[string]any:
		return appendObject(append(to, 'o'), value, p)
	}
	// Another of Go's types: what policies see of it tells it apart.
	return appendText(append(to, '?'), newTerm(value).String())
}

// appendScalar appends a text or number where more of it is read than that it is
// one: going through a text is to count its letters.
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
				field = absentValue{}
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

// elementReads is what is read of every element or field; nil where they are not gone
// through.
func (p *readSet) elementReads() *readSet {
	if p.whole {
		return p
	}
	return p.elements
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}
