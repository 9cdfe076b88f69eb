// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package value

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	longestQuantity = 64
	exponentDigits  = 2
)

// Quantity reads an amount, written as a string or as a number. No amount is what
// is longer than 64 bytes or has an exponent of more than two digits: resource
// would compute for seconds on it.
func Quantity(v any) (resource.Quantity, bool) {
	if s, ok := v.(string); ok {
		return parse(s)
	}
	if i, ok := Whole(v); ok {
		return *resource.NewQuantity(i, resource.DecimalSI), true
	}
	if _, ok := number(v); ok {
		written, err := json.Marshal(v)
		if err != nil { // not a number, or without end
			return resource.Quantity{}, false
		}
		return parse(string(written))
	}
	return resource.Quantity{}, false
}

func parse(s string) (resource.Quantity, bool) {
	if len(s) > longestQuantity {
		return resource.Quantity{}, false
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 && len(strings.TrimLeft(s[i+1:], "+-0")) > exponentDigits {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(s)
	return q, err == nil
}

// SameQuantity tells whether both are the same amount: "1" and "1000m" are.
func SameQuantity(a, b any) bool {
	if s, ok := a.(string); ok {
		if t, ok := b.(string); ok && s == t {
			return true
		}
	}
	p, ok := Quantity(a)
	if !ok {
		return Equal(a, b)
	}
	q, ok := Quantity(b)
	return ok && p.Cmp(q) == 0
}
