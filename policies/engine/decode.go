// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	// maxBytes is the largest document that is read: what the API server sends at
	// most, two objects of 3 MiB and what stands around them.
	maxBytes = 7 << 20
	// maxDepth is how deep arrays and objects may nest in a document.
	maxDepth = 256

	metadataField = "metadata"
	managedFields = "managedFields"
)

// The limits of a document.
var (
	// ErrTooLarge: the document has more than 7 MiB.
	ErrTooLarge = errors.New("the JSON document has more than 7 MiB")
	// ErrTooDeep: arrays and objects nest more than 256 deep.
	ErrTooDeep = errors.New("the JSON document nests more than 256 deep")
)

// Decode returns the Document of a JSON text. It reads what encoding/json reads,
// with three differences: metadata.managedFields, at any depth, is checked but
// left out, since it is half of an object and no policy's business; a key that
// occurs twice in an object is an error; and so is a number that is no float64.
// Errors say at which byte.
func Decode(raw []byte) (Document, error) {
	if len(raw) > maxBytes {
		return Document{}, ErrTooLarge
	}
	// One copy for all strings: they are cut out of it.
	d := decoder{text: string(raw)}
	d.space()
	term, err := d.value(false, 0)
	if err != nil {
		return Document{}, err
	}
	d.space()
	if d.at < len(d.text) {
		return Document{}, d.fault("expected the end")
	}
	return Document{term: term, from: &origin{text: d.text, spans: d.spans}}, nil
}

// decoder builds the terms of one text. pairs and elements are stacks that all
// levels of the text share.
type decoder struct {
	text     string
	at       int
	free     []ast.Term
	pairs    [][2]*ast.Term
	elements []*ast.Term
	seen     map[string]struct{}
	spans    []span
}

func (d *decoder) fault(expected string) error {
	if d.at >= len(d.text) {
		return fmt.Errorf("invalid JSON: unexpected end, %s", expected)
	}
	return fmt.Errorf("invalid JSON at byte %d: %s, found %q", d.at, expected, d.text[d.at])
}

func (d *decoder) space() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

func (d *decoder) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

// term takes the next of a block of terms: one allocation for many.
func (d *decoder) term(value ast.Value) *ast.Term {
	if len(d.free) == 0 {
		d.free = make([]ast.Term, 64)
	}
	term := &d.free[0]
	d.free = d.free[1:]
	term.Value = value
	return term
}

// nested is a term for an array or object that began where it is said, and ends
// here.
func (d *decoder) nested(value ast.Value, begin, depth int) *ast.Term {
	term := d.term(value)
	if depth <= maxPath+2 {
		d.spans = append(d.spans, span{term, begin, d.at})
	}
	return term
}

// value reads any JSON value; inMetadata says that it is the value of a field
// named metadata.
func (d *decoder) value(inMetadata bool, depth int) (*ast.Term, error) {
	switch c := d.peek(); c {
	case '{':
		return d.object(inMetadata, depth+1)
	case '[':
		return d.array(depth + 1)
	case '"':
		text, err := d.str()
		if err != nil {
			return nil, err
		}
		if known, ok := commonTerms[text]; ok {
			return known, nil
		}
		return d.term(ast.String(text)), nil
	case 't':
		return ast.InternedBooleanTrue, d.word("true")
	case 'f':
		return ast.InternedBooleanFalse, d.word("false")
	case 'n':
		return ast.InternedNullTerm, d.word("null")
	default:
		if c == '-' || isDigit(c) {
			return d.number()
		}
		return nil, d.fault("expected a value")
	}
}

func (d *decoder) word(word string) error {
	if len(d.text)-d.at < len(word) || d.text[d.at:d.at+len(word)] != word {
		return d.fault("expected " + word)
	}
	d.at += len(word)
	return nil
}

func (d *decoder) array(depth int) (*ast.Term, error) {
	if depth > maxDepth {
		return nil, ErrTooDeep
	}
	begin := d.at
	d.at++
	d.space()
	if d.peek() == ']' {
		d.at++
		return ast.InternedEmptyArray, nil
	}
	bottom := len(d.elements)
	for {
		d.space()
		element, err := d.value(false, depth)
		if err != nil {
			return nil, err
		}
		d.elements = append(d.elements, element)
		d.space()
		switch d.peek() {
		case ',':
			d.at++
		case ']':
			d.at++
			// The array keeps the slice it is given, so it gets one of its own.
			own := append([]*ast.Term(nil), d.elements[bottom:]...)
			d.elements = d.elements[:bottom]
			return d.nested(ast.NewArray(own...), begin, depth), nil
		default:
			return nil, d.fault("expected , or ]")
		}
	}
}

func (d *decoder) object(inMetadata bool, depth int) (*ast.Term, error) {
	if depth > maxDepth {
		return nil, ErrTooDeep
	}
	begin := d.at
	d.at++
	d.space()
	if d.peek() == '}' {
		d.at++
		return ast.InternedEmptyObject, nil
	}
	bottom := len(d.pairs)
	for {
		key, err := d.key()
		if err != nil {
			return nil, err
		}
		if inMetadata && key == managedFields {
			err = d.skip(depth)
		} else {
			var value *ast.Term
			value, err = d.value(key == metadataField, depth)
			d.pairs = append(d.pairs, [2]*ast.Term{d.keyTerm(key), value})
		}
		if err != nil {
			return nil, err
		}
		d.space()
		switch d.peek() {
		case ',':
			d.at++
		case '}':
			d.at++
			if twice, ok := d.duplicate(d.pairs[bottom:]); ok {
				return nil, fmt.Errorf("invalid JSON before byte %d: the key %q occurs twice", d.at, twice)
			}
			object := ast.NewObject(d.pairs[bottom:]...)
			d.pairs = d.pairs[:bottom]
			return d.nested(object, begin, depth), nil
		default:
			return nil, d.fault("expected , or }")
		}
	}
}

// key reads a key and the colon after it.
func (d *decoder) key() (string, error) {
	d.space()
	if d.peek() != '"' {
		return "", d.fault("expected a key")
	}
	key, err := d.str()
	if err != nil {
		return "", err
	}
	d.space()
	if d.peek() != ':' {
		return "", d.fault("expected :")
	}
	d.at++
	d.space()
	return key, nil
}

func (d *decoder) keyTerm(key string) *ast.Term {
	if known, ok := commonTerms[key]; ok {
		return known
	}
	return d.term(ast.String(key))
}

// duplicate finds a key that occurs twice: by comparing each with each where
// there are few, as there mostly are.
func (d *decoder) duplicate(pairs [][2]*ast.Term) (string, bool) {
	if len(pairs) <= 8 {
		for i := range pairs {
			for j := range i {
				if pairs[i][0].Value == pairs[j][0].Value {
					return string(pairs[i][0].Value.(ast.String)), true
				}
			}
		}
		return "", false
	}
	if d.seen == nil {
		d.seen = make(map[string]struct{}, len(pairs))
	}
	clear(d.seen)
	for _, pair := range pairs {
		key := string(pair[0].Value.(ast.String))
		if _, ok := d.seen[key]; ok {
			return key, true
		}
		d.seen[key] = struct{}{}
	}
	return "", false
}
