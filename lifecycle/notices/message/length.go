// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// Length is a length of time in words.
type Length struct {
	// Text is the length by itself: "10 Tage".
	Text string
	// Dative is the length after "in", "nach" or "um": "10 Tagen".
	Dative string
}

const day = 24 * time.Hour

// units are those in which lengths are told, with their words for one and for more,
// and German's for more after a preposition, and for one.
var units = []struct {
	length                     time.Duration
	one, more                  string
	eine, einer, viele, vielen string
}{
	{day, "day", "days", "Tag", "Tag", "Tage", "Tagen"},
	{time.Hour, "hour", "hours", "Stunde", "Stunde", "Stunden", "Stunden"},
	{time.Minute, "minute", "minutes", "Minute", "Minute", "Minuten", "Minuten"},
	{time.Second, "second", "seconds", "Sekunde", "Sekunde", "Sekunden", "Sekunden"},
}

// exactly is a length with all its units; up to two days are told in hours, as limits
// are.
func (t teller) exactly(d time.Duration) *Length {
	d = d.Truncate(time.Second)
	var text, dative []string
	for _, u := range units {
		if u.length == day && d < 3*day {
			continue
		}
		if n := int64(d / u.length); n > 0 || u.length == time.Second && len(text) == 0 {
			d %= u.length
			one := t.count(n, u.one, u.more, u.eine, u.viele)
			text = append(text, one)
			dative = append(dative, t.count(n, u.one, u.more, u.einer, u.vielen))
		}
	}
	return &Length{Text: strings.Join(text, " "), Dative: strings.Join(dative, " ")}
}

// roughly is a length in one unit, rounded to the nearest: what a person wants to know
// of something ahead.
func (t teller) roughly(d time.Duration) *Length {
	unit := time.Minute
	switch {
	case d >= 47*time.Hour+30*time.Minute:
		unit = day
	case d >= 90*time.Minute:
		unit = time.Hour
	}
	if d = d.Round(unit); unit == day {
		n := int64(d / day)
		return &Length{Text: t.count(n, "day", "days", "Tag", "Tage"), Dative: t.count(n, "day", "days", "Tag", "Tagen")}
	}
	return t.exactly(d)
}

func (t teller) count(n int64, one, more, eine, viele string) string {
	if t.language == v1alpha1.LanguageGerman {
		one, more = eine, viele
	}
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + more
}
