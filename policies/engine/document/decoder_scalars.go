// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxNumberDigits is slightly more than the longest integer that is a float64 needs.
const maxNumberDigits = 400

// number reads a number. A number that is not written as an int64 keeps its text, so 1.0
// stays 1.0.
func (d *decoder) number() (any, error) {
	start := d.offset
	if err := d.skipNumber(); err != nil {
		return nil, err
	}
	text := d.text[start:d.offset]
	if text != "-0" {
		if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
			return whole, nil
		}
	}
	if len(text) > 15 || strings.ContainsAny(text, "eE") {
		if _, err := ParseFinite(text); err != nil {
			return nil, fmt.Errorf("invalid JSON at byte %d: %w", start, err)
		}
	}
	return json.Number(text), nil
}

// ParseFinite returns a number as a float64. It rejects numbers far beyond a float64 in
// either direction, which make arithmetic slow.
func ParseFinite(text string) (float64, error) {
	if len(text) > maxNumberDigits {
		return 0, fmt.Errorf("a number has %d digits; %d are allowed", len(text), maxNumberDigits)
	}
	float, err := strconv.ParseFloat(text, 64)
	if err == nil {
		// OPA has a limit of its own, for the exponent of zero too.
		_, err = ast.NumberChecked(text)
	}
	if err != nil {
		return 0, fmt.Errorf("the number %s is too large", text)
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
	if float == 0 && strings.ContainsAny(mantissa, "123456789") {
		return 0, fmt.Errorf("the number %s is too small", text)
	}
	return float, nil
}

// skipNumber checks a number by RFC 8259.
func (d *decoder) skipNumber() error {
	if d.peek() == '-' {
		d.offset++
	}
	switch {
	case d.peek() == '0':
		d.offset++
	case isDigit(d.peek()):
		d.skipDigits()
	default:
		return d.syntaxError("expected a digit")
	}
	if d.peek() == '.' {
		d.offset++
		if !d.skipDigits() {
			return d.syntaxError("expected a digit")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		d.offset++
		if c := d.peek(); c == '+' || c == '-' {
			d.offset++
		}
		if !d.skipDigits() {
			return d.syntaxError("expected a digit")
		}
	}
	return nil
}

func (d *decoder) skipDigits() bool {
	start := d.offset
	for isDigit(d.peek()) {
		d.offset++
	}
	return d.offset > start
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// readString reads a string. Most strings have no escapes and are slices of the text.
func (d *decoder) readString() (string, error) {
	start := d.offset + 1
	plain, err := d.skipString()
	if err != nil {
		return "", err
	}
	text := d.text[start : d.offset-1]
	if plain {
		return text, nil
	}
	return unescape(text), nil
}

// skipString checks a string and its escapes. It reports whether the text between the
// quotes is the string itself.
func (d *decoder) skipString() (plain bool, err error) {
	d.offset++
	plain = true
	for d.offset < len(d.text) {
		switch c := d.text[d.offset]; {
		case c == '"':
			d.offset++
			return plain, nil
		case c == '\\':
			plain = false
			if err := d.skipEscape(); err != nil {
				return false, err
			}
		case c < ' ':
			return false, d.syntaxError("expected no control character in a string")
		case c < utf8.RuneSelf:
			d.offset++
		default:
			r, size := utf8.DecodeRuneInString(d.text[d.offset:])
			if r == utf8.RuneError && size == 1 {
				plain = false
			}
			d.offset += size
		}
	}
	return false, d.syntaxError("expected the end of a string")
}

func (d *decoder) skipEscape() error {
	d.offset++
	switch d.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		d.offset++
		return nil
	case 'u':
		d.offset++
		for range 4 {
			if !isHex(d.peek()) {
				return d.syntaxError("expected a hexadecimal digit")
			}
			d.offset++
		}
		return nil
	}
	return d.syntaxError("expected an escape")
}

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// unescape resolves escapes, and replaces invalid characters with U+FFFD as encoding/json
// does. skipString has checked the escapes.
func unescape(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for len(text) > 0 {
		if text[0] != '\\' {
			r, size := utf8.DecodeRuneInString(text)
			b.WriteRune(r)
			text = text[size:]
			continue
		}
		if text[1] != 'u' {
			b.WriteByte(escapes[text[1]])
			text = text[2:]
			continue
		}
		r := parseHexRune(text)
		text = text[6:]
		if utf16.IsSurrogate(r) {
			pair := rune(utf8.RuneError)
			if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
				pair = utf16.DecodeRune(r, parseHexRune(text))
			}
			if pair != utf8.RuneError {
				text = text[6:]
			}
			r = pair
		}
		b.WriteRune(r)
	}
	return b.String()
}

var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// parseHexRune returns the character of the four digits after \u.
func parseHexRune(text string) rune {
	value, _ := strconv.ParseUint(text[2:6], 16, 32)
	return rune(value)
}
