// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
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
	value, err := d.value(false, 0)
	if err != nil {
		return Document{}, err
	}
	d.space()
	if d.at < len(d.text) {
		return Document{}, d.fault("expected the end")
	}
	return documentOf(value), nil
}

// decoder builds the values of one text. fields and elements are stacks that all
// levels of the text share.
type decoder struct {
	text     string
	at       int
	fields   []field
	elements []any
}

type field struct {
	name  string
	value any
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

// value reads any JSON value; inMetadata says that it is the value of a field
// named metadata.
func (d *decoder) value(inMetadata bool, depth int) (any, error) {
	switch c := d.peek(); c {
	case '{':
		return d.object(inMetadata, depth+1)
	case '[':
		return d.array(depth + 1)
	case '"':
		return d.str()
	case 't':
		return true, d.word("true")
	case 'f':
		return false, d.word("false")
	case 'n':
		return nil, d.word("null")
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

func (d *decoder) array(depth int) (any, error) {
	if depth > maxDepth {
		return nil, ErrTooDeep
	}
	d.at++
	d.space()
	if d.peek() == ']' {
		d.at++
		return []any{}, nil
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
			own := append([]any(nil), d.elements[bottom:]...)
			d.elements = d.elements[:bottom]
			return own, nil
		default:
			return nil, d.fault("expected , or ]")
		}
	}
}

func (d *decoder) object(inMetadata bool, depth int) (any, error) {
	if depth > maxDepth {
		return nil, ErrTooDeep
	}
	d.at++
	d.space()
	if d.peek() == '}' {
		d.at++
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
			d.fields = append(d.fields, field{key, value})
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
			object := make(map[string]any, len(d.fields)-bottom)
			for _, field := range d.fields[bottom:] {
				if _, twice := object[field.name]; twice {
					return nil, fmt.Errorf("invalid JSON before byte %d: the key %q occurs twice", d.at, field.name)
				}
				object[field.name] = field.value
			}
			d.fields = d.fields[:bottom]
			return object, nil
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
