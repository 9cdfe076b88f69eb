// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package show

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// inHours is up to where a length is told in hours: limits are declared so.
const inHours = 72 * time.Hour

// Span is a length of time in a few letters, cut down to what matters: 48h,
// 3h12m, 30m5s, and from three days on 3d4h. Below a second, and below zero,
// it is 0s.
func Span(length time.Duration) string {
	units := []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	if length < inHours {
		units = units[1:]
	}
	for len(units) > 1 && length < units[0].length {
		units = units[1:]
	}
	var text strings.Builder
	for _, unit := range units[:min(2, len(units))] {
		if n := length / unit.length; n > 0 {
			text.WriteString(strconv.FormatInt(int64(n), 10) + unit.name)
			length %= unit.length
		}
	}
	return cmp.Or(text.String(), "0s")
}

// Instant is a point in time as a person reads it, to the minute and with the
// zone it is in: 2026-11-23 16:05 CET.
func Instant(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("2006-01-02 15:04 MST")
}

// Second is [Instant] to the second.
func Second(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("2006-01-02 15:04:05 MST")
}
