// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"sluice.dev/cmd/sluice/printer"
)

// usageColumn is one of the fields that name a row.
type usageColumn struct {
	title string // of the table
	name  string // of the CSV
	value func(UsageRow) string
}

var (
	departmentColumn = usageColumn{"DEPARTMENT", "department", func(r UsageRow) string { return r.Department }}
	projectColumn    = usageColumn{"PROJECT", "project", func(r UsageRow) string { return r.Project }}
	userColumn       = usageColumn{"USER", "user", func(r UsageRow) string { return r.User }}
	typeColumn       = usageColumn{"TYPE", "type", func(r UsageRow) string { return string(r.Type) }}
	poolColumn       = usageColumn{"NODE POOL", "node_pool", func(r UsageRow) string { return r.NodePool }}
)

// usageColumns are those that a report has.
func (by UsageGrouping) usageColumns() []usageColumn {
	switch by {
	case GroupByProject:
		return []usageColumn{departmentColumn, projectColumn}
	case GroupByUser:
		return []usageColumn{userColumn}
	case GroupByType:
		return []usageColumn{typeColumn}
	case GroupByPool:
		return []usageColumn{poolColumn}
	default:
		return []usageColumn{departmentColumn, projectColumn, userColumn, typeColumn}
	}
}

// milliSecondsPerTenthHour is a tenth of a GPU-hour.
const milliSecondsPerTenthHour = 3600 * 1000 / 10

// WriteUsageTable prints a report for a person, in GPU-hours rounded to tenths. The total
// is rounded by itself, so that it can differ from the sum of rounded rows.
func WriteUsageTable(output io.Writer, report UsageReport) error {
	if len(report.Rows) == 0 {
		_, err := fmt.Fprintf(output, "no use of GPUs is recorded for %s\n", report.Month)
		return err
	}
	const hours = "GPU HOURS"
	table := printer.Table{Right: []string{hours}}
	columns := report.GroupBy.usageColumns()
	for _, c := range columns {
		table.Headers = append(table.Headers, c.title)
	}
	table.Headers = append(table.Headers, hours)
	for _, row := range report.Rows {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.value(row))
		}
		table.Rows = append(table.Rows, append(cells, formatTenthHours(row.GPUMilliSeconds)))
	}
	total := make([]string, len(columns)+1)
	for i := range total {
		total[i] = " " // no "-": there is nothing to tell apart
	}
	total[0], total[len(columns)] = "total "+report.Month, formatTenthHours(report.GPUMilliSeconds)
	table.Rows = append(table.Rows, total)
	return table.Write(output)
}

// formatTenthHours are GPU-hours with one decimal, rounded half up.
func formatTenthHours(milliSeconds int64) string {
	n := milliSeconds / milliSecondsPerTenthHour
	if milliSeconds%milliSecondsPerTenthHour >= milliSecondsPerTenthHour/2 {
		n++
	}
	return fmt.Sprintf("%d.%d", n/10, n%10)
}

// WriteUsageCSV writes a report as RFC 4180 has it, with a line of names on top and without
// a total. The use is there exactly, in GPU-milli-seconds, and in GPU-hours to
// the milli-hour.
//
// Names are those that people chose, so they are made harmless: control
// characters are written as escapes, and where a spreadsheet would take a name
// for a formula an apostrophe stands before it. JSON has them as they are.
func WriteUsageCSV(output io.Writer, report UsageReport) error {
	w := csv.NewWriter(output)
	w.UseCRLF = true
	columns := report.GroupBy.usageColumns()
	head := []string{"month"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	lines := [][]string{append(head, "gpu_hours", "gpu_milli_seconds")}
	for _, row := range report.Rows {
		line := []string{report.Month}
		for _, c := range columns {
			line = append(line, escapeForSpreadsheet(c.value(row)))
		}
		lines = append(lines, append(line, formatGPUHours(row.GPUMilliSeconds), strconv.FormatInt(row.GPUMilliSeconds, 10)))
	}
	if err := w.WriteAll(lines); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

// escapeForSpreadsheet is a name that neither a terminal nor a spreadsheet acts upon.
func escapeForSpreadsheet(name string) string {
	name = printer.Sanitize(name)
	// Some spreadsheets look past blanks, and take wide forms for the narrow ones.
	if strings.IndexAny(strings.TrimLeft(name, " \u00a0\u3000"), "=+-@＝＋－＠") == 0 {
		return "'" + name
	}
	return name
}

// formatGPUHours are GPU-hours with three decimals, rounded half up.
func formatGPUHours(milliSeconds int64) string {
	const perMilliHour = 3600
	n := milliSeconds / perMilliHour
	if milliSeconds%perMilliHour >= perMilliHour/2 {
		n++
	}
	return fmt.Sprintf("%d.%03d", n/1000, n%1000)
}
