// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Milli is thousandths of one GPU. In JSON and in print it is a decimal number:
// 500 is 0.5.
type Milli int64

// one is a whole GPU.
const one Milli = 1000

// String is the decimal number, without needless zeros.
func (m Milli) String() string { return string(m.append(make([]byte, 0, 24))) }

// MarshalJSON writes the decimal number.
func (m Milli) MarshalJSON() ([]byte, error) { return m.append(make([]byte, 0, 24)), nil }

// UnmarshalJSON reads a decimal number of at least 0, in steps of a thousandth.
func (m *Milli) UnmarshalJSON(raw []byte) error {
	value, exact, ok := decimal(string(raw))
	if !ok || !exact {
		return fmt.Errorf("%s GPUs: want a number of at least 0 with at most three decimals, such as 0.5", raw)
	}
	*m = value
	return nil
}

func (m Milli) append(to []byte) []byte {
	if m < 0 {
		to = append(to, '-')
		m = -m
	}
	to = strconv.AppendInt(to, int64(m/one), 10)
	if rest := int64(m % one); rest > 0 {
		to = append(to, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
		to = bytes.TrimRight(to, "0")
	}
	return to
}

// mostWhole is how many whole GPUs a decimal number may have: more than anybody
// can be given, and far from overflow.
const mostWhole = 1_000_000

// decimal reads digits with at most one point: "2", "0.25", ".5". What is beyond
// the third decimal is cut off, and the value is then not exact. There is no sign
// and no exponent.
func decimal(text string) (value Milli, exact, ok bool) {
	before, after, _ := strings.Cut(text, ".")
	whole, ok := int64(0), before != "" || after != ""
	if before != "" {
		whole, ok = wholeNumber(before, mostWhole)
	}
	value, exact = Milli(whole)*one, true
	for place := range len(after) {
		digit := after[place]
		switch {
		case !isDigit(digit):
			return 0, false, false
		case place < 3:
			value += Milli(digit-'0') * [...]Milli{100, 10, 1}[place]
		case digit != '0':
			exact = false
		}
	}
	return value, exact, ok
}

// wholeNumber reads digits alone, up to most; that is never near overflow.
func wholeNumber(text string, most int64) (value int64, ok bool) {
	if text == "" {
		return 0, false
	}
	for at := range len(text) {
		if !isDigit(text[at]) {
			return 0, false
		}
		if value = value*10 + int64(text[at]-'0'); value > most {
			return 0, false
		}
	}
	return value, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
