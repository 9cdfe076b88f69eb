// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"io"

	"sluice.dev/cmd/sluice/show"
)

// milliSecondsPerTenth is a tenth of a GPU-hour.
const milliSecondsPerTenth = 3600 * 1000 / 10

// Table prints a report for a person, in GPU-hours rounded to tenths. The total
// is rounded by itself, so that it can differ from the sum of rounded rows.
func Table(output io.Writer, report Report) error {
	if len(report.Rows) == 0 {
		_, err := fmt.Fprintf(output, "no use of GPUs is recorded for %s\n", report.Month)
		return err
	}
	const hours = "GPU HOURS"
	table := show.Table{Right: []string{hours}}
	columns := report.By.columns()
	for _, c := range columns {
		table.Headers = append(table.Headers, c.title)
	}
	table.Headers = append(table.Headers, hours)
	for _, row := range report.Rows {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.of(row))
		}
		table.Rows = append(table.Rows, append(cells, tenths(row.GPUMilliSeconds)))
	}
	total := make([]string, len(columns)+1)
	for i := range total {
		total[i] = " " // no "-": there is nothing to tell apart
	}
	total[0], total[len(columns)] = "total "+report.Month, tenths(report.GPUMilliSeconds)
	table.Rows = append(table.Rows, total)
	return table.Write(output)
}

// tenths are GPU-hours with one decimal, rounded half up.
func tenths(milliSeconds int64) string {
	n := milliSeconds / milliSecondsPerTenth
	if milliSeconds%milliSecondsPerTenth >= milliSecondsPerTenth/2 {
		n++
	}
	return fmt.Sprintf("%d.%d", n/10, n%10)
}
