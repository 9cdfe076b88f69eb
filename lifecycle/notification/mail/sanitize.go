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
	maxProseRunes = 500 // runes of a sentence that somebody wrote
)

// sanitize makes one line of what somebody wrote: control, bidirectional and invisible
// characters are out, and so is space twice.
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

// truncate cuts a line to so many runes, the last of them an ellipsis.
func truncate(s string, runes int) string {
	if utf8.RuneCountInString(s) <= runes {
		return s
	}
	return strings.TrimRight(string([]rune(s)[:runes-1]), " ") + "…"
}

// displayName is a name as it is shown.
func displayName(s string) string { return truncate(sanitize(s), maxNameRunes) }

// shellWordPattern is a name that every shell takes as one word, and no program as a flag.
var shellWordPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,252}$`)

// commandArgument is a name as a command has it: whole, or a placeholder.
func commandArgument(s, placeholder string) string {
	if shellWordPattern.MatchString(s) {
		return s
	}
	return placeholder
}

// maxTextColumn is where a line of text ends; what cannot be broken goes on.
const maxTextColumn = 76

// layoutFuncs are the functions of the built-in text layout.
var layoutFuncs = template.FuncMap{
	"wrap": wrapText,
	"hang": func(label, text string) string {
		indent := strings.Repeat(" ", utf8.RuneCountInString(label)+2)
		return label + "  " + strings.TrimPrefix(wrapText(indent, text), indent)
	},
	"underline": func(s string) string { return strings.Repeat("-", utf8.RuneCountInString(s)) },
}

// wrapText breaks a paragraph into lines between its words.
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
