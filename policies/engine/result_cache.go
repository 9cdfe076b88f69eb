// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"

	"sluice.dev/policies/engine/dependency"
	"sluice.dev/policies/merge"
)

// resultCache caches a policy's results by the segments of input that decide them. A
// policy has no clock, no randomness and no data, so equal segments give equal results.
// Callers share cached results and must not change them.
type resultCache = Cache[[sha256.Size]byte, policyResult]

// maxCacheBytes limits the bytes of one generation of a cache.
const maxCacheBytes = 1 << 20

func newResultCache(entries int) *resultCache {
	return NewCache[[sha256.Size]byte, policyResult](entries, maxCacheBytes)
}

// size estimates the bytes of a result.
func (a *policyResult) size() int {
	size := 256
	for _, findings := range [][]merge.Finding{a.deny, a.violation, a.warn} {
		for _, c := range findings {
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

// maxKeySegments is the number of segments above which results are not cached.
const maxKeySegments = 96

// keyBuilder encodes the segments of one input as cache keys. Policies that read the same
// segments share the encoding.
type keyBuilder struct {
	input    *boundInput
	segments []dependency.Segment
	// encoded holds each segment once a policy needs it.
	encoded [][]byte
	buffer  []byte
}

func (b *boundInput) newKeyBuilder(segments []dependency.Segment) *keyBuilder {
	return &keyBuilder{input: b, segments: segments, encoded: make([][]byte, len(segments))}
}

// appendKey appends segments to a key.
func (c *keyBuilder) appendKey(key []byte, indexes []int) []byte {
	for _, i := range indexes {
		if c.encoded[i] == nil {
			c.encoded[i] = c.encodeSegment(&c.segments[i])
		}
		key = append(key, c.encoded[i]...)
	}
	return key
}

// encodeSegment returns the bytes of a segment. A long segment becomes its SHA-256 after
// a byte that starts no other encoding.
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
