// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Document is a JSON document that policies read. It never changes, so it may be
// shared by any number of evaluations at once. The zero Document is absent: its
// field is undefined.
type Document struct {
	of *contents
}

// contents are a document's value, and what policies see of it: that is made when
// the first policy is asked, since mostly all answers are remembered.
type contents struct {
	value any
	once  sync.Once
	seen  *ast.Term
}

func documentOf(value any) Document { return Document{&contents{value: value}} }

// FromGo returns the Document of a Go value that encoding/json can encode. As in
// [Decode], metadata.managedFields is left out.
func FromGo(value any) (Document, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return Document{}, fmt.Errorf("convert %T for policies: %w", value, err)
	}
	return Decode(raw)
}

// FromObject returns the Document of an object of [Document.Object]'s values. It
// must not be changed any more, nor anything in it.
func FromObject(object map[string]any) Document { return documentOf(object) }

// Object is the document's object; nil where it is none. It is made of maps,
// []any, strings, booleans and nil, with numbers as int64 or, where they are none
// or not written as one, json.Number. It is the document itself: it must not be
// changed, nor anything in it.
func (d Document) Object() map[string]any {
	object, _ := d.value().(map[string]any)
	return object
}

// Absent tells whether the document is missing or null.
func (d Document) Absent() bool { return d.value() == nil }

func (d Document) value() any {
	if d.of == nil {
		return nil
	}
	return d.of.value
}

// term is the document as policies see it; nil where it is absent.
func (d Document) term() *ast.Term {
	if d.of == nil {
		return nil
	}
	d.of.once.Do(func() {
		if d.of.seen == nil {
			d.of.seen = termOf(d.of.value)
		}
	})
	return d.of.seen
}

// Field returns a field of an object, absent where there is none.
func (d Document) Field(name string) Document {
	value, ok := d.Object()[name]
	if !ok {
		return Document{}
	}
	return documentOf(value)
}

// With returns the object with one field set, or, where value is absent,
// without it. The document itself stays as it is. On anything but an object it
// returns an object of that one field.
func (d Document) With(name string, value Document) Document {
	object := maps.Clone(d.Object())
	switch {
	case value.of == nil:
		delete(object, name)
	case object == nil:
		object = map[string]any{name: value.of.value}
	default:
		object[name] = value.of.value
	}
	if object == nil {
		object = map[string]any{}
	}
	return documentOf(object)
}

// Equal tells whether two documents hold the same JSON value.
func (d Document) Equal(other Document) bool {
	if d.of == nil || other.of == nil {
		return d.of == other.of
	}
	return d.term().Value.Compare(other.term().Value) == 0
}

// MarshalJSON returns the document's JSON, null where it is absent.
func (d Document) MarshalJSON() ([]byte, error) { return json.Marshal(d.value()) }
