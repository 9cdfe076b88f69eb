// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"errors"
	"fmt"
)

const (
	// maxDocumentBytes limits a document to what the API server sends at most: two
	// objects of 3 MiB each and their envelope.
	maxDocumentBytes = 7 << 20
	// MaxDepth limits how deep arrays and objects nest.
	MaxDepth = 256

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

// Decode returns the Document of a JSON text. It accepts what encoding/json accepts, with
// three differences. It checks but omits metadata.managedFields at any depth: that is
// half of an object and irrelevant to policies. A duplicate key in an object is an error.
// A number that is not a float64 is an error. Errors state the byte offset.
func Decode(raw []byte) (Document, error) {
	if len(raw) > maxDocumentBytes {
		return Document{}, ErrTooLarge
	}
	// One copy for all strings: they are slices of it.
	d := decoder{text: string(raw)}
	d.skipSpace()
	value, err := d.value(false, 0)
	if err != nil {
		return Document{}, err
	}
	d.skipSpace()
	if d.offset < len(d.text) {
		return Document{}, d.syntaxError("expected the end")
	}
	return New(value), nil
}

// decoder builds the values of one text. All levels of the text share the stacks fields
// and elements.
type decoder struct {
	text     string
	offset   int
	fields   []decodedField
	elements []any
}

type decodedField struct {
	name  string
	value any
}

func (d *decoder) syntaxError(expected string) error {
	if d.offset >= len(d.text) {
		return fmt.Errorf("invalid JSON: unexpected end, %s", expected)
	}
	return fmt.Errorf("invalid JSON at byte %d: %s, found %q", d.offset, expected, d.text[d.offset])
}

func (d *decoder) skipSpace() {
	for d.offset < len(d.text) {
		switch d.text[d.offset] {
		case ' ', '\t', '\n', '\r':
			d.offset++
		default:
			return
		}
	}
}

func (d *decoder) peek() byte {
	if d.offset < len(d.text) {
		return d.text[d.offset]
	}
	return 0
}

// value reads any JSON value. inMetadata: it is the value of a field named metadata.
func (d *decoder) value(inMetadata bool, depth int) (any, error) {
	switch c := d.peek(); c {
	case '{':
		return d.object(inMetadata, depth+1)
	case '[':
		return d.array(depth + 1)
	case '"':
		return d.readString()
	case 't':
		return true, d.literal("true")
	case 'f':
		return false, d.literal("false")
	case 'n':
		return nil, d.literal("null")
	default:
		if c == '-' || isDigit(c) {
			return d.number()
		}
		return nil, d.syntaxError("expected a value")
	}
}

func (d *decoder) literal(word string) error {
	if len(d.text)-d.offset < len(word) || d.text[d.offset:d.offset+len(word)] != word {
		return d.syntaxError("expected " + word)
	}
	d.offset += len(word)
	return nil
}

func (d *decoder) array(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, ErrTooDeep
	}
	d.offset++
	d.skipSpace()
	if d.peek() == ']' {
		d.offset++
		return []any{}, nil
	}
	bottom := len(d.elements)
	for {
		d.skipSpace()
		element, err := d.value(false, depth)
		if err != nil {
			return nil, err
		}
		d.elements = append(d.elements, element)
		d.skipSpace()
		switch d.peek() {
		case ',':
			d.offset++
		case ']':
			d.offset++
			array := append([]any(nil), d.elements[bottom:]...)
			d.elements = d.elements[:bottom]
			return array, nil
		default:
			return nil, d.syntaxError("expected , or ]")
		}
	}
}

func (d *decoder) object(inMetadata bool, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, ErrTooDeep
	}
	d.offset++
	d.skipSpace()
	if d.peek() == '}' {
		d.offset++
		return map[string]any{}, nil
	}
	bottom := len(d.fields)
	for {
		key, err := d.key()
		if err != nil {
			return nil, err
		}
		if inMetadata && key == managedFields {
			err = d.skip(depth)
		} else {
			var value any
			value, err = d.value(key == metadataField, depth)
			d.fields = append(d.fields, decodedField{key, value})
		}
		if err != nil {
			return nil, err
		}
		d.skipSpace()
		switch d.peek() {
		case ',':
			d.offset++
		case '}':
			d.offset++
			object := make(map[string]any, len(d.fields)-bottom)
			for _, field := range d.fields[bottom:] {
				if _, twice := object[field.name]; twice {
					return nil, fmt.Errorf("invalid JSON before byte %d: the key %q occurs twice", d.offset, field.name)
				}
				object[field.name] = field.value
			}
			d.fields = d.fields[:bottom]
			return object, nil
		default:
			return nil, d.syntaxError("expected , or }")
		}
	}
}

// key reads a key and the colon after it.
func (d *decoder) key() (string, error) {
	d.skipSpace()
	if d.peek() != '"' {
		return "", d.syntaxError("expected a key")
	}
	key, err := d.readString()
	if err != nil {
		return "", err
	}
	d.skipSpace()
	if d.peek() != ':' {
		return "", d.syntaxError("expected :")
	}
	d.offset++
	d.skipSpace()
	return key, nil
}

// skip checks a value without building it.
func (d *decoder) skip(depth int) error {
	switch c := d.peek(); c {
	case '{', '[':
		return d.skipNested(c, depth+1)
	case '"':
		_, err := d.skipString()
		return err
	case 't':
		return d.literal("true")
	case 'f':
		return d.literal("false")
	case 'n':
		return d.literal("null")
	default:
		if c == '-' || isDigit(c) {
			return d.skipNumber()
		}
		return d.syntaxError("expected a value")
	}
}

func (d *decoder) skipNested(open byte, depth int) error {
	if depth > MaxDepth {
		return ErrTooDeep
	}
	closing := byte(']')
	if open == '{' {
		closing = '}'
	}
	d.offset++
	d.skipSpace()
	if d.peek() == closing {
		d.offset++
		return nil
	}
	for {
		if open == '{' {
			if _, err := d.key(); err != nil {
				return err
			}
		}
		d.skipSpace()
		if err := d.skip(depth); err != nil {
			return err
		}
		d.skipSpace()
		switch d.peek() {
		case ',':
			d.offset++
		case closing:
			d.offset++
			return nil
		default:
			return d.syntaxError("expected , or " + string(closing))
		}
	}
}
