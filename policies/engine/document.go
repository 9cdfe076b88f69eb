// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Document is a JSON document in the form in which policies read it. It is
// converted once and never changes, so it may be shared by any number of
// evaluations at once. The zero Document is absent: its field is undefined.
type Document struct {
	term *ast.Term
	// from is the text that the term was read from; nil for what [Document.With]
	// composed.
	from *origin
}

// origin is a JSON text, and where in it each array and object stands.
type origin struct {
	text  string
	spans []span
}

// span is the text of one array or object.
type span struct {
	term       *ast.Term
	begin, end int
}

// FromGo returns the Document of a Go value that encoding/json can encode. As in
// [Decode], metadata.managedFields is left out.
func FromGo(value any) (Document, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return Document{}, fmt.Errorf("convert %T for policies: %w", value, err)
	}
	return Decode(raw)
}

// Absent tells whether the document is missing or null.
func (d Document) Absent() bool {
	return d.term == nil || d.term.Value == ast.InternedNullValue
}

// Field returns a field of an object, absent where there is none.
func (d Document) Field(name string) Document {
	object, ok := d.object()
	if !ok {
		return Document{}
	}
	return Document{term: object.Get(keyTerm(name)), from: d.from}
}

// With returns the object with one field set, or, where value is absent,
// without it. The document itself stays as it is. On anything but an object it
// returns an object of that one field.
func (d Document) With(name string, value Document) Document {
	object, ok := d.object()
	if !ok {
		object = ast.NewObject()
	}
	pairs := make([][2]*ast.Term, 0, object.Len()+1)
	object.Foreach(func(key, old *ast.Term) {
		if key.Value != ast.String(name) {
			pairs = append(pairs, [2]*ast.Term{key, old})
		}
	})
	if value.term != nil {
		pairs = append(pairs, [2]*ast.Term{keyTerm(name), value.term})
	}
	return Document{term: ast.NewTerm(ast.NewObject(pairs...))}
}

// Equal tells whether two documents hold the same JSON value.
func (d Document) Equal(other Document) bool {
	if d.term == nil || other.term == nil {
		return d.term == other.term
	}
	return d.term.Value.Compare(other.term.Value) == 0
}

// MarshalJSON returns the document's JSON, null where it is absent.
func (d Document) MarshalJSON() ([]byte, error) {
	if d.term == nil {
		return []byte("null"), nil
	}
	value, err := ast.JSON(d.term.Value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func (d Document) object() (ast.Object, bool) {
	if d.term == nil {
		return nil, false
	}
	object, ok := d.term.Value.(ast.Object)
	return object, ok
}

// textOf is the text of an array or object of the document; false where it was
// not read from a text.
func (d Document) textOf(term *ast.Term) (string, bool) {
	if d.from == nil {
		return "", false
	}
	for _, s := range d.from.spans {
		if s.term == term {
			return d.from.text[s.begin:s.end], true
		}
	}
	return "", false
}
