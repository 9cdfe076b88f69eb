// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"regexp"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"
)

const (
	maxNameRunes  = 80  // runes of a name that are shown
	maxProseRunes = 500 // runes of user text
)

// sanitize turns user text into one line without control, bidirectional and invisible characters
// and without repeated spaces.
func sanitize(s string) string {
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

// truncate shortens a line to a number of runes, with an ellipsis at the end.
func truncate(s string, runes int) string {
	if utf8.RuneCountInString(s) <= runes {
		return s
	}
	return strings.TrimRight(string([]rune(s)[:runes-1]), " ") + "…"
}

// displayName sanitizes and truncates a name.
func displayName(s string) string { return truncate(sanitize(s), maxNameRunes) }

// shellWordPattern matches names that are one shell word and no flag.
var shellWordPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,252}$`)

// commandArgument returns the name if it is safe in a command, else the placeholder.
func commandArgument(s, placeholder string) string {
	if shellWordPattern.MatchString(s) {
		return s
	}
	return placeholder
}

// maxTextColumn is the column where text wraps; longer words are not broken.
const maxTextColumn = 76

// layoutFuncs holds the functions of the built-in text layout.
var layoutFuncs = template.FuncMap{
	"wrap": wrapText,
	"hang": func(label, text string) string {
		indent := strings.Repeat(" ", utf8.RuneCountInString(label)+2)
		return label + "  " + strings.TrimPrefix(wrapText(indent, text), indent)
	},
	"underline": func(s string) string { return strings.Repeat("-", utf8.RuneCountInString(s)) },
}

// wrapText wraps a paragraph between words.
func wrapText(indent, text string) string {
	var b strings.Builder
	b.WriteString(indent)
	at := utf8.RuneCountInString(indent)
	empty := true
	for _, word := range strings.Fields(text) {
		size := utf8.RuneCountInString(word)
		switch {
		case empty:
		case at+1+size > maxTextColumn:
			b.WriteString("\n" + indent)
			at = utf8.RuneCountInString(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at, empty = at+size, false
	}
	return b.String()
}
