// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package period

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// component takes a number of at most maxDigits digits and its unit off the
// front of text. It reports false where text begins with something else.
func component(text string, unit byte, maxDigits int) (n int, rest string, ok bool) {
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

func orUTC(loc *time.Location) *time.Location {
	if loc == nil {
		return time.UTC
	}
	return loc
}
