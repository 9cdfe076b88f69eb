// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// rowsShown is how many projects a WeeklySummary shows.
const rowsShown = 20

// hours is an amount of use; what is no number is not known.
func (p *Page) hours(s string) string {
	if _, err := strconv.ParseFloat(s, 64); err != nil || len(s) > 20 {
		return unknown
	}
	return p.decimal(s)
}

// weeks takes in the table of a WeeklySummary.
func (p *Page) weeks(tell teller, raw string) error {
	if raw == "" {
		return nil
	}
	var rows []Week
	if err := json.Unmarshal([]byte(raw), &rows); err != nil {
		return fmt.Errorf("spec.inputs.%s is not what Weeks writes: %w", InputProjects, err)
	}
	p.Columns = p.Words.WeekColumns
	for i, row := range rows {
		if i == rowsShown {
			p.More = fmt.Sprintf(p.Words.More, len(rows)-rowsShown)
			break
		}
		end := unknown
		if at, err := time.Parse(time.RFC3339, row.ExpiresAt); err == nil {
			end = tell.moment(at, true).Day
		}
		p.Rows = append(p.Rows, []string{name(row.Project), p.hours(row.GPUHours), strconv.Itoa(row.Stopped), end})
	}
	return nil
}
