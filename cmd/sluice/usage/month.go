// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"time"
)

// monthForm is how a month is written.
const monthForm = "2006-01"

// ParseMonth checks a month, YYYY-MM, as a UsageRecord names it.
func ParseMonth(text string) (string, error) {
	at, err := time.Parse(monthForm, text)
	if err != nil || at.Format(monthForm) != text {
		return "", fmt.Errorf("month %q: want a month as YYYY-MM, such as 2026-10", text)
	}
	return text, nil
}

// MonthOf is the month of an instant in zone.
func MonthOf(at time.Time, zone *time.Location) string { return at.In(zone).Format(monthForm) }
