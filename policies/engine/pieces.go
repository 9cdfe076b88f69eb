// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/open-policy-agent/opa/v1/ast"
)

// pieces are the parts of one input that policies read, each as bytes that no
// other value of it shares: the value itself where it is a scalar, the SHA-256 of
// its text where it is an array or an object. Policies that read the same path
// share the piece.
type pieces struct {
	input *bound
	paths []inputPath
	// known has the piece of each path that was asked for; an empty one has no
	// bytes to it.
	known [][]byte
	asked []bool
}

func newPieces(input *bound, paths []inputPath) *pieces {
	return &pieces{input: input, paths: paths, known: make([][]byte, len(paths)), asked: make([]bool, len(paths))}
}

// key appends the pieces at the given paths to a key. It reports false where one
// of them has no bytes to it: then nothing can be remembered by it.
func (p *pieces) key(key []byte, paths []int) ([]byte, bool) {
	for _, path := range paths {
		if !p.asked[path] {
			p.asked[path] = true
			p.known[path] = p.input.piece(p.paths[path])
		}
		piece := p.known[path]
		if len(piece) == 0 {
			return key, false
		}
		key = append(key, piece...)
	}
	return key, true
}

// piece returns the bytes of the value at a path.
func (b *bound) piece(path inputPath) []byte {
	document, term := b.find(path)
	if term == nil {
		return []byte{'u'}
	}
	switch value := term.Value.(type) {
	case ast.Null:
		return []byte{'0'}
	case ast.Boolean:
		if value {
			return []byte{'t'}
		}
		return []byte{'f'}
	case ast.Number:
		return scalar('n', string(value))
	case ast.String:
		return scalar('s', string(value))
	case ast.Object:
		if value.Len() == 0 {
			return []byte{'o'}
		}
	case *ast.Array:
		if value.Len() == 0 {
			return []byte{'a'}
		}
	}
	text, ok := document.textOf(term)
	if !ok {
		return nil
	}
	sum := sha256.Sum256([]byte(text))
	return append([]byte{'j'}, sum[:]...)
}

func scalar(kind byte, text string) []byte {
	if len(text) > 2*sha256.Size {
		sum := sha256.Sum256([]byte(text))
		return append([]byte{kind - 'a' + 'A'}, sum[:]...)
	}
	return append(binary.AppendUvarint([]byte{kind}, uint64(len(text))), text...)
}

// find returns the value at a path, nil where it is undefined, and the document
// whose text has it. What policies see in the review as the object is the object.
func (b *bound) find(path inputPath) (Document, *ast.Term) {
	document := b.document(path[0])
	if len(path) > 1 && path[0] == "review" && (path[1] == "object" || path[1] == "oldObject") {
		if part := b.document(path[1]); !part.Absent() {
			path, document = path[1:], part
		}
	}
	if document.Absent() {
		return Document{}, nil
	}
	term := document.term
	for _, step := range path[1:] {
		object, ok := term.Value.(ast.Object)
		if !ok {
			return Document{}, nil
		}
		if term = object.Get(keyTerm(step)); term == nil {
			return Document{}, nil
		}
	}
	return document, term
}
