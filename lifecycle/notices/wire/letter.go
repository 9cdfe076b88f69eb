// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
)

// maxLine is the longest line of a message without its line break: RFC 5321
// section 4.5.3.1.6, RFC 5322 section 2.1.1.
const maxLine = 998

// letter is a message that may go on the wire.
type letter struct {
	bytes       []byte
	utf8Headers bool // needs SMTPUTF8 (RFC 6532)
	eightBit    bool // needs 8BITMIME (RFC 6152)
}

// checkLetter lets through a whole message in its form for the wire: a header, an
// empty line, and lines that end with CRLF. Servers differ in what a lone CR or LF
// means to them, and that difference has been used to smuggle messages; so there
// is none.
func checkLetter(message []byte) (letter, error) {
	head, _, whole := bytes.Cut(message, []byte("\r\n\r\n"))
	if !whole || len(head) == 0 {
		return letter{}, errors.New("it has no empty line that ends its header: it is not whole")
	}
	if !bytes.HasSuffix(message, []byte("\r\n")) {
		return letter{}, errors.New("its last line has no line break: it is not whole")
	}
	number := 0
	for line := range bytes.Lines(message) {
		number++
		text, ended := bytes.CutSuffix(line, []byte("\r\n"))
		switch {
		case !ended:
			return letter{}, fmt.Errorf("line %d ends with a lone LF; lines end with CRLF", number)
		case bytes.IndexByte(text, '\r') >= 0:
			return letter{}, fmt.Errorf("line %d has a lone CR; lines end with CRLF", number)
		case bytes.IndexByte(text, 0) >= 0:
			return letter{}, fmt.Errorf("line %d has a NUL byte", number)
		case len(text) > maxLine:
			return letter{}, fmt.Errorf("line %d has %d bytes; %d are allowed", number, len(text), maxLine)
		}
	}
	return letter{bytes: message, utf8Headers: !isASCII(head), eightBit: !isASCII(message)}, nil
}
