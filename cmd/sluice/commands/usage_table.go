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

// amountColumn is an amount of a report.
type amountColumn struct {
	title string // in the table
	cell  func(usageSums) string
	names []string // in CSV
	cells func(usageSums) []string
}

// newHoursColumn returns a column of GPU-hours, which in CSV is also exact.
func newHoursColumn(title, prefix string, value func(usageSums) int64) amountColumn {
	return amountColumn{
		title, func(s usageSums) string { return formatTenthHours(value(s)) },
		[]string{prefix + "gpu_hours", prefix + "gpu_milli_seconds"},
		func(s usageSums) []string { return []string{formatGPUHours(value(s)), strconv.FormatInt(value(s), 10)} },
	}
}

var (
	requestedColumns  = []amountColumn{newHoursColumn("GPU HOURS", "", func(s usageSums) int64 { return s.GPUMilliSeconds })}
	efficiencyColumns = append(requestedColumns[:1:1],
		newHoursColumn("USED", "used_", func(s usageSums) int64 { return s.Used }),
		newHoursColumn("IDLE", "idle_", func(s usageSums) int64 { return s.Idle }),
		amountColumn{"EFFICIENCY", formatEfficiency, nil, func(usageSums) []string { return nil }})
)

// formatEfficiency returns the efficiency, or nothing if it is unknown.
func formatEfficiency(s usageSums) string {
	percent, known := s.efficiency()
	if !known {
		return ""
	}
	return strconv.FormatInt(percent, 10) + "%"
}

// milliSecondsPerTenthHour is a tenth of a GPU-hour.
const milliSecondsPerTenthHour = 3600 * 1000 / 10

// writeUsageTable prints a report in GPU-hours, rounded to tenths. The total is
// rounded separately, so it may differ from the sum of the rounded rows.
func writeUsageTable(output io.Writer, report usageReport, amounts []amountColumn) error {
	if len(report.Rows) == 0 {
		_, err := fmt.Fprintf(output, "No GPU use is recorded for %s.\n", report.Month)
		return err
	}
	var table printer.Table
	columns := report.GroupBy.columns()
	for _, c := range columns {
		table.Columns = append(table.Columns, printer.Column{Name: c.title})
	}
	for _, a := range amounts {
		table.Columns = append(table.Columns, printer.Column{Name: a.title})
	}
	for _, row := range report.Rows {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.value(row))
		}
		for _, a := range amounts {
			cells = append(cells, a.cell(row.usageSums))
		}
		table.Rows = append(table.Rows, cells)
	}
	total := []string{"total " + report.Month}
	for range columns[1:] {
		total = append(total, " ") // an empty cell would print as "-"
	}
	for _, a := range amounts {
		total = append(total, a.cell(report.usageSums))
	}
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
func writeUsageCSV(output io.Writer, report usageReport, amounts []amountColumn) error {
	w := csv.NewWriter(output)
	w.UseCRLF = true
	columns := report.GroupBy.columns()
	header := []string{"month"}
	for _, c := range columns {
		header = append(header, c.name)
	}
	for _, a := range amounts {
		header = append(header, a.names...)
	}
	lines := [][]string{header}
	for _, row := range report.Rows {
		line := []string{report.Month}
		for _, c := range columns {
			line = append(line, escapeForSpreadsheet(c.value(row)))
		}
		for _, a := range amounts {
			line = append(line, a.cells(row.usageSums)...)
		}
		lines = append(lines, line)
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
