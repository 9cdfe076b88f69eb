// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"sluice.dev/cmd/sluice/show"
)

// CSV writes a report as RFC 4180 has it, with a line of names on top and without
// a total. The use is there exactly, in GPU-milli-seconds, and in GPU-hours to
// the milli-hour.
//
// Names are those that people chose, so they are made harmless: control
// characters are written as escapes, and where a spreadsheet would take a name
// for a formula an apostrophe stands before it. JSON has them as they are.
func CSV(output io.Writer, report Report) error {
	w := csv.NewWriter(output)
	w.UseCRLF = true
	columns := report.By.columns()
	head := []string{"month"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	lines := [][]string{append(head, "gpu_hours", "gpu_milli_seconds")}
	for _, row := range report.Rows {
		line := []string{report.Month}
		for _, c := range columns {
			line = append(line, harmless(c.of(row)))
		}
		lines = append(lines, append(line, hours(row.GPUMilliSeconds), strconv.FormatInt(row.GPUMilliSeconds, 10)))
	}
	if err := w.WriteAll(lines); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

// harmless is a name that neither a terminal nor a spreadsheet acts upon.
func harmless(name string) string {
	name = show.Clean(name)
	// Some spreadsheets look past blanks, and take wide forms for the narrow ones.
	if strings.IndexAny(strings.TrimLeft(name, " \u00a0\u3000"), "=+-@＝＋－＠") == 0 {
		return "'" + name
	}
	return name
}

// hours are GPU-hours with three decimals, rounded half up.
func hours(milliSeconds int64) string {
	const perMilliHour = 3600
	n := milliSeconds / perMilliHour
	if milliSeconds%perMilliHour >= perMilliHour/2 {
		n++
	}
	return fmt.Sprintf("%d.%03d", n/1000, n%1000)
}
