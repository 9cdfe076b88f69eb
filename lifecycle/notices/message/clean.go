// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	nameLength  = 80  // runes of a name that are shown
	proseLength = 500 // runes of a sentence that somebody wrote
)

// clean makes one line of what somebody wrote: control, bidirectional and invisible
// characters are out, and so is space twice.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp):
			return ' '
		case r == '\u200c', r == '\u200d': // Persian and emoji are written with these
			return r
		case unicode.In(r, unicode.Cf, unicode.Co, unicode.Noncharacter_Code_Point):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	return strings.Join(strings.Fields(s), " ")
}

// shorten cuts a line to so many runes, the last of them an ellipsis.
func shorten(s string, runes int) string {
	if utf8.RuneCountInString(s) <= runes {
		return s
	}
	return strings.TrimRight(string([]rune(s)[:runes-1]), " ") + "…"
}

// name is a name as it is shown.
func name(s string) string { return shorten(clean(s), nameLength) }

// word is a name that every shell takes as one word, and no program as a flag.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,252}$`)

// argument is a name as a command has it: whole, or a placeholder.
func argument(s, placeholder string) string {
	if word.MatchString(s) {
		return s
	}
	return placeholder
}
