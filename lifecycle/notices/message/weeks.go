// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"sluice.dev/api/v1alpha1"
)

// rowsShown is how many projects a WeeklySummary shows.
const rowsShown = 20

// amount is how a figure is recorded that is measured.
var amount = regexp.MustCompile(`^[0-9]{1,12}([.][0-9]{1,3})?$`)

// hours is an amount of use; empty for what is no number.
func (p *Page) hours(s string) string {
	if !amount.MatchString(s) {
		return ""
	}
	return p.decimal(s)
}

// month takes in the month that a WeeklySummary's GPU hours are of, 2026-11.
func (p *Page) month(tell teller, text string) {
	of, err := time.Parse("2006-01", text)
	if err != nil {
		return
	}
	called := of.Month().String()
	if tell.language == v1alpha1.LanguageGerman {
		called = monthsGerman[of.Month()-1]
	}
	p.Month = called + " " + strconv.Itoa(of.Year())
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
	p.Columns = slices.Clone(p.Words.WeekColumns)
	if p.Month != "" {
		p.Columns[1] = fmt.Sprintf(p.Words.HoursIn, p.Month)
	}
	for i, row := range rows {
		if i == rowsShown {
			p.More = fmt.Sprintf(p.Words.More, len(rows)-rowsShown)
			break
		}
		end := unknown
		if at, err := time.Parse(time.RFC3339, row.ExpiresAt); err == nil {
			end = tell.moment(at, true).Day
		}
		p.Rows = append(p.Rows, []string{name(row.Project), cmp.Or(p.hours(row.GPUHours), unknown), strconv.Itoa(row.Stopped), end})
	}
	return nil
}
