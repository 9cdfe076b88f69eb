// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"fmt"
	"strings"
)

// list is the format n times, with the numbers from 0 on.
func list(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(items, ", ")
}

// condition is a condition of a type.
func condition(kind string) string {
	return fmt.Sprintf(`{type: %s, status: "True", reason: R, message: m, lastTransitionTime: "2026-10-01T00:00:00Z"}`, kind)
}

// long is a text of n letters.
func long(n int) string { return strings.Repeat("x", n) }
