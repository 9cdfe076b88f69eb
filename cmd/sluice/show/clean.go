// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Clean is text on one line and without anything that a terminal acts upon or
// that changes what its neighbours look like: control characters, marks of
// direction, line separators and broken UTF-8 stand there as Go writes them,
// \n, \x1b or \u202e. Everything else stays as it is.
func Clean(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
		case strconv.IsGraphic(r):
			out.WriteRune(r)
		default:
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		text = text[size:]
	}
	return out.String()
}

// CleanLines is [Clean] for each line of a text that has several, such as an
// error that the API server worded.
func CleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}
