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

// PeriodPattern is the form of a Period as a regular expression. The few digits
// keep dozens of renewals within the years that a timestamp can name (9999).
const PeriodPattern = `^P([0-9]{1,2}Y)?([0-9]{1,3}M)?([0-9]{1,3}W)?([0-9]{1,3}D)?$`

const periodHelp = "want an ISO 8601 period of whole years, months, weeks and days in this order, such as P6M, P1Y6M, P2W or P30D, longer than zero, two digits of years and three of the others at most"

// Period is a step in the calendar as ISO 8601 writes it, of whole years,
// months, weeks and days: "P6M", "P1Y6M", "P2W". It has no fixed length, so it
// is counted from a date. It is always longer than zero; the zero value stands
// for "not set" and prints as the empty string.
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

// periodUnits lists the units in the order in which a text must have them. A
// year is always twelve months and a week always seven days, so two numbers
// carry them all.
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

// ParsePeriod reads a Period. The error names the text and what is allowed.
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

// MustParsePeriod is ParsePeriod for texts that a program holds itself. It
// panics where ParsePeriod would return an error; never give it a user's text.
func MustParsePeriod(text string) Period {
	p, err := ParsePeriod(text)
	if err != nil {
		panic(err)
	}
	return p
}

// AddTo is the time of day of anchor, n whole periods later in the calendar of
// loc. It counts from the anchor itself, never step by step, and a day which
// the month does not have becomes that month's last: two times P6M after
// 31 August is 31 August again, though the first is 28 February. A negative n
// counts backwards. A nil loc is UTC.
func (p Period) AddTo(anchor time.Time, n int, loc *time.Location) time.Time {
	local := anchor.In(locationOrUTC(loc))
	day := p.dateAfter(DateOf(anchor, loc), n)
	return time.Date(day.year, day.month, day.day,
		local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), local.Location())
}

// ExpiryOf is the first instant at which n whole periods after anchor are over:
// the end of that day in loc, which is the first instant of the day after it.
// What ends then is still valid on the whole day which AddTo names.
func (p Period) ExpiryOf(anchor time.Time, n int, loc *time.Location) time.Time {
	return p.dateAfter(DateOf(anchor, loc), n).End(loc)
}

// dateAfter moves a date by n periods: first the months, clamped, then the days.
func (p Period) dateAfter(from Date, n int) Date {
	first := time.Date(from.year, from.month+time.Month(n*p.months), 1, 0, 0, 0, 0, time.UTC)
	last := time.Date(first.Year(), first.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	day := min(from.day, last) + n*p.days
	return DateOf(time.Date(first.Year(), first.Month(), day, 0, 0, 0, 0, time.UTC), time.UTC)
}

// String is the text as it was written; empty for the zero value.
func (p Period) String() string { return p.text }

// IsZero reports whether the period was never set.
func (p Period) IsZero() bool { return p.months == 0 && p.days == 0 }

// Equal reports whether both lead from every date to the same one: P1Y equals P12M.
func (p Period) Equal(other Period) bool { return p.months == other.months && p.days == other.days }

// MarshalJSON writes the text as it was written.
func (p Period) MarshalJSON() ([]byte, error) { return json.Marshal(p.text) }

// UnmarshalJSON reads a text as ParsePeriod does; null and "" leave "not set".
func (p *Period) UnmarshalJSON(raw []byte) error {
	return unmarshalText(raw, p, "period", ParsePeriod)
}

// parseComponent takes a number of at most maxDigits digits and its unit off the
// front of text. It reports false where text begins with something else.
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

// unmarshalText reads a JSON string into what parse makes of it.
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
