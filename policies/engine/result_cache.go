// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"

	"sluice.dev/policies/engine/cache"
	"sluice.dev/policies/engine/dependency"
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
	segments []dependency.Segment
	// encoded has each piece that was asked for.
	encoded [][]byte
	// buffer is a buffer.
	buffer []byte
}

func (b *boundInput) newKeyBuilder(pieces []dependency.Segment) *keyBuilder {
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
func (c *keyBuilder) encodeSegment(p *dependency.Segment) []byte {
	c.buffer = p.AppendKey(c.buffer[:0], c.input.valueAt(p.Path))
	if len(c.buffer) <= 2*sha256.Size {
		return append([]byte(nil), c.buffer...)
	}
	sum := sha256.Sum256(c.buffer)
	return append([]byte{'#'}, sum[:]...)
}

// valueAt returns the value at a path.
func (b *boundInput) valueAt(path dependency.Path) any {
	field := b.field(path[0])
	if field.IsAbsent() {
		return dependency.Absent{}
	}
	value := field.Value()
	for _, step := range path[1:] {
		object, ok := value.(map[string]any)
		if !ok {
			return dependency.Absent{}
		}
		if value, ok = object[step]; !ok {
			return dependency.Absent{}
		}
	}
	return value
}
