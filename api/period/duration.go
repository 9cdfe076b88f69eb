// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package period

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// DurationPattern is the regular expression of a Duration. Five digits for each unit limit it to
// 285 years; time.Duration holds 292.
const DurationPattern = `^([0-9]{1,5}d)?([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$`

const durationHelp = "want whole numbers of d, h, m and s in this order, such as 30m, 48h, 10d or 1d12h (d = 24 h), " +
	"longer than zero, at most five digits each"

// durationDigits is the largest number of digits of one component.
const durationDigits = 5

// Duration is an exact length of time: whole numbers of days, hours, minutes and seconds in this
// order, each at most once and with at most five digits, such as 30m, 48h, 10d or 1d12h. A day is
// 24 hours. A Duration is longer than zero; the zero value means that it is not set and has the
// text "".
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=24
// +kubebuilder:validation:Pattern=`^([0-9]{1,5}d)?([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$`
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}d)?([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$') && self.matches('[1-9]')",message="must be a duration longer than zero in whole d, h, m and s, in this order, such as 30m, 48h, 10d or 1d12h (d = 24 h)"
type Duration struct {
	text   string
	length time.Duration
}

// durationUnits lists the units in their order.
var durationUnits = []struct {
	suffix byte
	length time.Duration
}{
	{'d', 24 * time.Hour},
	{'h', time.Hour},
	{'m', time.Minute},
	{'s', time.Second},
}

// ParseDuration parses a Duration. The error names the text and what is allowed.
func ParseDuration(text string) (Duration, error) {
	rest, length := text, time.Duration(0)
	for _, unit := range durationUnits {
		n, after, ok := parseComponent(rest, unit.suffix, durationDigits)
		if !ok {
			continue
		}
		length += time.Duration(n) * unit.length
		rest = after
	}
	if rest != "" || length <= 0 {
		return Duration{}, fmt.Errorf("duration %q: %s", text, durationHelp)
	}
	return Duration{text: text, length: length}, nil
}

// MustParseDuration is ParseDuration for constants of the program. It panics on an error.
func MustParseDuration(text string) Duration {
	return must(ParseDuration(text))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// DurationOf returns a length as a Duration, rounded down to whole seconds. It fails for less
// than a second and for more than five digits of days.
func DurationOf(length time.Duration) (Duration, error) {
	var text strings.Builder
	rest := length
	for _, unit := range durationUnits {
		if n := rest / unit.length; n > 0 {
			fmt.Fprintf(&text, "%d%c", n, unit.suffix)
			rest %= unit.length
		}
	}
	d, err := ParseDuration(text.String())
	if err != nil {
		return Duration{}, fmt.Errorf("length %v as a duration: want at least 1s and at most 99999d", length)
	}
	return d, nil
}

// Length returns the length, 0 for the zero value.
func (d Duration) Length() time.Duration { return d.length }

// String returns the parsed text, "" for the zero value.
func (d Duration) String() string { return d.text }

// IsZero reports whether the duration is not set.
func (d Duration) IsZero() bool { return d.length == 0 }

// Equal reports whether both have the same length: 48h equals 2d.
func (d Duration) Equal(other Duration) bool { return d.length == other.length }

// MarshalJSON encodes the parsed text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.text) }

// UnmarshalJSON parses a string; null and "" give the zero value.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	return unmarshalText(raw, d, "duration", ParseDuration)
}
