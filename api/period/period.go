// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package period

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// PeriodPattern is the regular expression of a Period. The limits ensure that a timestamp (up to
// the year 9999) can hold the end of dozens of renewals.
const PeriodPattern = `^P([0-9]{1,2}Y)?([0-9]{1,3}M)?([0-9]{1,3}W)?([0-9]{1,3}D)?$`

const periodHelp = "want an ISO 8601 period of whole years, months, weeks and days in this order, such as P6M, P1Y6M, P2W or P30D, " +
	"longer than zero, two digits of years and three of the others at most"

// Period is a calendar step in ISO 8601 form, of whole years, months, weeks and days, such as
// P6M, P1Y6M or P2W. It has no fixed length and is counted from a date. A Period is longer than
// zero; the zero value means that it is not set and has the text "".
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^P([0-9]{1,2}Y)?([0-9]{1,3}M)?([0-9]{1,3}W)?([0-9]{1,3}D)?$`
// +kubebuilder:validation:XValidation:rule="self.matches('^P([0-9]{1,2}Y)?([0-9]{1,3}M)?([0-9]{1,3}W)?([0-9]{1,3}D)?$') && self.matches('[1-9]')",message="must be an ISO 8601 period longer than zero of whole years, months, weeks and days, in this order, such as P6M, P1Y6M, P2W or P30D"
type Period struct {
	text   string
	months int
	days   int
}

// periodUnits lists the units in their order. A year is twelve months and a week seven days, so
// months and days represent all units.
var periodUnits = []struct {
	suffix       byte
	digits       int
	months, days int
}{
	{'Y', 2, 12, 0},
	{'M', 3, 1, 0},
	{'W', 3, 0, 7},
	{'D', 3, 0, 1},
}

// ParsePeriod parses a Period. The error names the text and what is allowed.
func ParsePeriod(text string) (Period, error) {
	p := Period{text: text}
	rest, started := strings.CutPrefix(text, "P")
	for _, unit := range periodUnits {
		n, after, ok := parseComponent(rest, unit.suffix, unit.digits)
		if !ok {
			continue
		}
		p.months += n * unit.months
		p.days += n * unit.days
		rest = after
	}
	if !started || rest != "" || p.IsZero() {
		return Period{}, fmt.Errorf("period %q: %s", text, periodHelp)
	}
	return p, nil
}

// MustParsePeriod is ParsePeriod for constants of the program. It panics on an error.
func MustParsePeriod(text string) Period {
	return must(ParsePeriod(text))
}

// AddTo returns the anchor plus n periods, at the same time of day in loc. If the resulting month
// has no such day, it uses the month's last day. It adds all periods at once, not step by step:
// P6M after 31 August is 28 February, and two times P6M is 31 August again. n may be negative. A
// nil loc means UTC.
func (p Period) AddTo(anchor time.Time, n int, loc *time.Location) time.Time {
	local := anchor.In(locationOrUTC(loc))
	day := p.dateAfter(DateOf(anchor, loc), n)
	return time.Date(day.year, day.month, day.day,
		local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), local.Location())
}

// ExpiryOf returns the end of the day that is n whole periods after anchor in loc: the first
// instant of the next day. The whole day that AddTo returns is still valid.
func (p Period) ExpiryOf(anchor time.Time, n int, loc *time.Location) time.Time {
	return p.dateAfter(DateOf(anchor, loc), n).End(loc)
}

// dateAfter moves a date by n periods: first the months, limited to the month's last day, then
// the days.
func (p Period) dateAfter(from Date, n int) Date {
	first := time.Date(from.year, from.month+time.Month(n*p.months), 1, 0, 0, 0, 0, time.UTC)
	last := time.Date(first.Year(), first.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	day := min(from.day, last) + n*p.days
	return DateOf(time.Date(first.Year(), first.Month(), day, 0, 0, 0, 0, time.UTC), time.UTC)
}

// String returns the parsed text, "" for the zero value.
func (p Period) String() string { return p.text }

// IsZero reports whether the period is not set.
func (p Period) IsZero() bool { return p.months == 0 && p.days == 0 }

// Equal reports whether both periods, added to any date, give the same date: P1Y equals P12M.
func (p Period) Equal(other Period) bool { return p.months == other.months && p.days == other.days }

// MarshalJSON encodes the parsed text.
func (p Period) MarshalJSON() ([]byte, error) { return json.Marshal(p.text) }

// UnmarshalJSON parses a string; null and "" give the zero value.
func (p *Period) UnmarshalJSON(raw []byte) error {
	return unmarshalText(raw, p, "period", ParsePeriod)
}

// parseComponent parses a number of at most maxDigits digits and its unit at the start of text.
// It returns false if text starts with something else.
func parseComponent(text string, unit byte, maxDigits int) (n int, rest string, ok bool) {
	digits := 0
	for digits < len(text) && '0' <= text[digits] && text[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > maxDigits || digits == len(text) || text[digits] != unit {
		return 0, text, false
	}
	n, err := strconv.Atoi(text[:digits])
	return n, text[digits+1:], err == nil
}

// unmarshalText decodes a JSON string and parses it.
func unmarshalText[T any](raw []byte, into *T, what string, parse func(string) (T, error)) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("%s %s: want a string: %w", what, raw, err)
	}
	var value T
	if text != "" {
		var err error
		if value, err = parse(text); err != nil {
			return err
		}
	}
	*into = value
	return nil
}

func locationOrUTC(loc *time.Location) *time.Location {
	if loc == nil {
		return time.UTC
	}
	return loc
}
