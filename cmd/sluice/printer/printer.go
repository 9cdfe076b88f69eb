// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package show is how sluice's commands put things before a person or a machine.
//
// Enters: values, names that anybody may have chosen, lengths and instants of
// time. Leaves: tables, JSON and words on the terminal.
//
// It never writes a character that a terminal would act upon, whoever chose the
// name that has it, and never asks what time it is.
package printer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
)

// Table is rows under headers, in columns as wide as they need to be.
type Table struct {
	// Headers name the columns.
	Headers []string
	// Right marks the columns that are set to the right, by their headers.
	Right []string
	// Rows have as many cells as there are headers. An empty cell prints as "-".
	Rows [][]string
}

// Write prints the table, every cell cleaned (see [Clean]).
func (t Table) Write(output io.Writer) error {
	lines := [][]string{t.Headers}
	for _, row := range t.Rows {
		line := make([]string, len(t.Headers))
		for i := range line {
			line[i] = "-"
			if i < len(row) && row[i] != "" {
				line[i] = Sanitize(row[i])
			}
		}
		lines = append(lines, line)
	}
	widths := make([]int, len(t.Headers))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	right := map[string]bool{}
	for _, header := range t.Right {
		right[header] = true
	}
	for _, line := range lines {
		var text strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-lipgloss.Width(cell))
			if right[t.Headers[i]] {
				cell, pad = pad+cell, ""
			}
			text.WriteString(cell + pad + "   ")
		}
		if _, err := fmt.Fprintln(output, strings.TrimRight(text.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes value for a machine, indented. What a terminal would act upon is
// escaped, so that the text is harmless there and still says exactly the same.
func WriteJSON(output io.Writer, value any) error {
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	var out strings.Builder
	for _, r := range raw.String() {
		if r == '\n' || strconv.IsGraphic(r) {
			out.WriteRune(r)
			continue
		}
		// encoding/json leaves alone what lies beyond the first 32 characters.
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	_, err := io.WriteString(output, out.String())
	return err
}

// Sanitize is text on one line and without anything that a terminal acts upon or
// that changes what its neighbors look like: control characters, marks of
// direction, line separators and broken UTF-8 stand there as Go writes them,
// \n, \x1b or \u202e. Everything else stays as it is.
func Sanitize(text string) string {
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

// SanitizeLines is [Clean] for each line of a text that has several, such as an
// error that the API server worded.
func SanitizeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Sanitize(lines[i])
	}
	return strings.Join(lines, "\n")
}

// hoursThreshold is up to where a length is told in hours: limits are declared so.
const hoursThreshold = 72 * time.Hour

// FormatDuration is a length of time in a few letters, cut down to what matters: 48h,
// 3h12m, 30m5s, and from three days on 3d4h. Below a second, and below zero,
// it is 0s.
func FormatDuration(length time.Duration) string {
	units := []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	if length < hoursThreshold {
		units = units[1:]
	}
	for len(units) > 1 && length < units[0].length {
		units = units[1:]
	}
	var text strings.Builder
	for _, unit := range units[:min(2, len(units))] {
		if n := length / unit.length; n > 0 {
			text.WriteString(strconv.FormatInt(int64(n), 10) + unit.name)
			length %= unit.length
		}
	}
	return cmp.Or(text.String(), "0s")
}

// FormatMinute is a point in time as a person reads it, to the minute and with the
// zone it is in: 2026-11-23 16:05 CET.
func FormatMinute(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("2006-01-02 15:04 MST")
}

// FormatSecond is [Instant] to the second.
func FormatSecond(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("2006-01-02 15:04:05 MST")
}
