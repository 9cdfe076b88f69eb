// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"io"
	"strings"

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
				line[i] = Clean(row[i])
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
