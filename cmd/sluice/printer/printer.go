// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printer prints the results of the sluice commands: tables, JSON and
// YAML by Kubernetes' printers, durations and times as text. It sanitizes every
// name, so that no user can send control characters to another user's terminal.
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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
)

// WriteJSON prints value as indented JSON. Control characters are escaped, so
// the text is harmless on a terminal and decodes to the exact value.
func WriteJSON(output io.Writer, value any) error {
	return writeObject(output, &printers.JSONPrinter{}, value)
}

// WriteYAML prints value as YAML with the names of its JSON fields. Control
// characters are replaced by their Go escapes.
func WriteYAML(output io.Writer, value any) error {
	var text bytes.Buffer
	if err := writeObject(&text, &printers.YAMLPrinter{}, value); err != nil {
		return err
	}
	_, err := io.WriteString(output, SanitizeLines(text.String()))
	return err
}

func writeObject(output io.Writer, printer printers.ResourcePrinter, value any) error {
	var raw bytes.Buffer
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	return printer.PrintObj(&runtime.Unknown{Raw: escapeJSON(bytes.TrimSpace(raw.Bytes()))}, output)
}

// escapeJSON escapes the control characters that encoding/json leaves as they are.
func escapeJSON(raw []byte) []byte {
	var out bytes.Buffer
	for _, r := range string(raw) {
		if strconv.IsGraphic(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.Bytes()
}

// Sanitize returns text on one line and without control characters, direction
// marks, line separators and broken UTF-8. These become Go escapes such as \n,
// \x1b or \u202e.
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

// SanitizeLines sanitizes each line of a text. A tab becomes two spaces.
func SanitizeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Sanitize(strings.ReplaceAll(lines[i], "\t", "  "))
	}
	return strings.Join(lines, "\n")
}

// maxHoursUnit is the length from which FormatDuration counts in days. Limits
// below it are declared in hours.
const maxHoursUnit = 72 * time.Hour

// FormatDuration returns the two largest units of a duration: 48h, 3h12m, 30m5s,
// and from three days on 3d4h. It returns 0s below one second.
func FormatDuration(duration time.Duration) string {
	units := []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	if duration < maxHoursUnit {
		units = units[1:]
	}
	for len(units) > 1 && duration < units[0].length {
		units = units[1:]
	}
	var text strings.Builder
	for _, unit := range units[:min(2, len(units))] {
		if n := duration / unit.length; n > 0 {
			text.WriteString(strconv.FormatInt(int64(n), 10) + unit.name)
			duration %= unit.length
		}
	}
	return cmp.Or(text.String(), "0s")
}

// FormatMinute returns a time to the minute with its zone: 2026-11-23 16:05 CET.
func FormatMinute(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("2006-01-02 15:04 MST")
}

// FormatSecond returns a time to the second with its zone.
func FormatSecond(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("2006-01-02 15:04:05 MST")
}

// ShellQuote quotes text as one word of a shell.
func ShellQuote(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// FieldList is text with one field on each line.
type FieldList struct{ strings.Builder }

// Add writes a field, sanitized. It omits an empty one.
func (f *FieldList) Add(name, value string) {
	if value != "" {
		fmt.Fprintf(f, "%-12s%s\n", name+":", Sanitize(value))
	}
}

// AddTime writes a time in a zone. It omits nil.
func (f *FieldList) AddTime(name string, at *time.Time, zone *time.Location) {
	if at != nil {
		f.Add(name, FormatSecond(*at, zone))
	}
}
