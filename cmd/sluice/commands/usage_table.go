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

// usageColumn is a field that defines the groups of a report.
type usageColumn struct {
	title string // in the table
	name  string // in CSV
	value func(usageRow) string
}

var (
	departmentColumn = usageColumn{"DEPARTMENT", "department", func(r usageRow) string { return r.Department }}
	projectColumn    = usageColumn{"PROJECT", "project", func(r usageRow) string { return r.Project }}
	userColumn       = usageColumn{"USER", "user", func(r usageRow) string { return r.User }}
	typeColumn       = usageColumn{"TYPE", "type", func(r usageRow) string { return string(r.Type) }}
	poolColumn       = usageColumn{"NODE POOL", "node_pool", func(r usageRow) string { return r.NodePool }}
)

func (by usageGrouping) columns() []usageColumn {
	switch by {
	case groupByProject:
		return []usageColumn{departmentColumn, projectColumn}
	case groupByUser:
		return []usageColumn{userColumn}
	case groupByType:
		return []usageColumn{typeColumn}
	case groupByPool:
		return []usageColumn{poolColumn}
	default:
		return []usageColumn{departmentColumn, projectColumn, userColumn, typeColumn}
	}
}

// milliSecondsPerTenthHour is a tenth of a GPU-hour.
const milliSecondsPerTenthHour = 3600 * 1000 / 10

// writeUsageTable prints a report in GPU-hours, rounded to tenths. The total is
// rounded separately, so it may differ from the sum of the rounded rows.
func writeUsageTable(output io.Writer, report usageReport) error {
	if len(report.Rows) == 0 {
		_, err := fmt.Fprintf(output, "No GPU use is recorded for %s.\n", report.Month)
		return err
	}
	var table printer.Table
	columns := report.GroupBy.columns()
	for _, c := range columns {
		table.Columns = append(table.Columns, printer.Column{Name: c.title})
	}
	table.Columns = append(table.Columns, printer.Column{Name: "GPU HOURS"})
	for _, row := range report.Rows {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.value(row))
		}
		table.Rows = append(table.Rows, append(cells, formatTenthHours(row.GPUMilliSeconds)))
	}
	total := make([]string, len(columns)+1)
	for i := range total {
		total[i] = " " // an empty cell would print as "-"
	}
	total[0], total[len(columns)] = "total "+report.Month, formatTenthHours(report.GPUMilliSeconds)
	table.Rows = append(table.Rows, total)
	return table.Write(output, false)
}

// formatTenthHours returns GPU-hours with one decimal, rounded half up.
func formatTenthHours(milliSeconds int64) string {
	n := milliSeconds / milliSecondsPerTenthHour
	if milliSeconds%milliSecondsPerTenthHour >= milliSecondsPerTenthHour/2 {
		n++
	}
	return fmt.Sprintf("%d.%d", n/10, n%10)
}

// writeUsageCSV prints a report as RFC 4180, with a header and without a total. It
// has the exact use in GPU-milli-seconds, and GPU-hours with three decimals.
//
// Users choose names, so control characters become escapes, and a name that a
// spreadsheet would evaluate gets an apostrophe. JSON has the exact names.
func writeUsageCSV(output io.Writer, report usageReport) error {
	w := csv.NewWriter(output)
	w.UseCRLF = true
	columns := report.GroupBy.columns()
	header := []string{"month"}
	for _, c := range columns {
		header = append(header, c.name)
	}
	lines := [][]string{append(header, "gpu_hours", "gpu_milli_seconds")}
	for _, row := range report.Rows {
		line := []string{report.Month}
		for _, c := range columns {
			line = append(line, escapeForSpreadsheet(c.value(row)))
		}
		lines = append(lines, append(line, formatGPUHours(row.GPUMilliSeconds), strconv.FormatInt(row.GPUMilliSeconds, 10)))
	}
	if err := w.WriteAll(lines); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// escapeForSpreadsheet returns a name that neither a terminal nor a spreadsheet
// evaluates.
func escapeForSpreadsheet(name string) string {
	name = printer.Sanitize(name)
	// Some spreadsheets ignore leading blanks and accept full-width characters.
	if strings.IndexAny(strings.TrimLeft(name, " \u00a0\u3000"), "=+-@＝＋－＠") == 0 {
		return "'" + name
	}
	return name
}

// formatGPUHours returns GPU-hours with three decimals, rounded half up.
func formatGPUHours(milliSeconds int64) string {
	const perMilliHour = 3600
	n := milliSeconds / perMilliHour
	if milliSeconds%perMilliHour >= perMilliHour/2 {
		n++
	}
	return fmt.Sprintf("%d.%03d", n/1000, n%1000)
}
