// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strings"
	"text/template"
	"unicode/utf8"
)

// column is where a line of text ends; what cannot be broken goes on.
const column = 76

// wrapping are the functions of the built-in text layout.
var wrapping = template.FuncMap{
	"wrap": wrap,
	"hang": func(label, text string) string {
		indent := strings.Repeat(" ", utf8.RuneCountInString(label)+2)
		return label + "  " + strings.TrimPrefix(wrap(indent, text), indent)
	},
	"underline": func(s string) string { return strings.Repeat("-", utf8.RuneCountInString(s)) },
}

// wrap breaks a paragraph into lines between its words.
func wrap(indent, text string) string {
	var b strings.Builder
	b.WriteString(indent)
	at := utf8.RuneCountInString(indent)
	empty := true
	for _, word := range strings.Fields(text) {
		size := utf8.RuneCountInString(word)
		switch {
		case empty:
		case at+1+size > column:
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
