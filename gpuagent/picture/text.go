// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"strconv"
	"strings"
)

// columns is how wide a line may be.
const columns = 80

// style is how a text looks: the parameter of a terminal's SGR sequence.
type style string

const (
	strong style = "1"
	faint  style = "2"
	good   style = "32"
	notice style = "33"
	bad    style = "1;31"
)

// pen writes with colours, or without.
type pen struct{ colours bool }

func (p pen) in(s style, text string) string {
	if !p.colours || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// clean is text without anything that a terminal acts upon.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsGraphic(r) {
			return r
		}
		return '?'
	}, text)
}

// fit is text, or as much of it as there is room for, with a mark.
func fit(text string, width int) string {
	runes := []rune(text)
	switch {
	case len(runes) <= width:
		return text
	case width < 1:
		return ""
	}
	return string(runes[:width-1]) + "…"
}

// pad fills text with blanks.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-len([]rune(text))))
}

// wrap breaks text between words into lines, all but the first indented.
func wrap(text, indent string) (lines []string) {
	line := text[:len(text)-len(strings.TrimLeft(text, " "))]
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > columns {
			lines = append(lines, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += fit(word, columns-len(indent))
		empty = false
	}
	return append(lines, line)
}
