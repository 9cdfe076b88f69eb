// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// AsString returns a string; empty for any other value.
func AsString(v any) string {
	s, _ := v.(string)
	return s
}

// AsMap returns an object; nil for any other value.
func AsMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// AsList returns a list; nil for any other value.
func AsList(v any) []any {
	l, _ := v.([]any)
	return l
}

// AsInt64 returns an integer that fits 64 bits. 2.0 is one.
func AsInt64(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case int32:
		return int64(n), true
	case float64:
		// 2^63 itself is a float64 that does not fit.
		whole := n == math.Trunc(n) && n >= math.MinInt64 && n < math.MaxInt64
		if !whole {
			return 0, false
		}
		return int64(n), true
	case json.Number:
		i, err := n.Int64()
		return i, err == nil
	}
	return 0, false
}

func asFloat64(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	if n, ok := v.(json.Number); ok {
		f, err := n.Float64()
		return f, err == nil
	}
	i, ok := AsInt64(v)
	return float64(i), ok
}

// Equal reports whether both are the same JSON. 2 equals 2.0.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		return ok && a == s
	case bool:
		t, ok := b.(bool)
		return ok && a == t
	case map[string]any:
		m, ok := b.(map[string]any)
		return ok && equalMaps(a, m)
	case []any:
		l, ok := b.([]any)
		return ok && equalLists(a, l)
	}
	if i, ok := AsInt64(a); ok {
		j, ok := AsInt64(b)
		return ok && i == j
	}
	if f, ok := asFloat64(a); ok {
		if _, whole := AsInt64(b); whole {
			return false
		}
		g, ok := asFloat64(b)
		return ok && f == g
	}
	return reflect.DeepEqual(a, b) // not from a JSON decoder
}

func equalMaps(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for key, in := range a {
		other, ok := b[key]
		if !ok || !Equal(in, other) {
			return false
		}
	}
	return true
}

func equalLists(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// IsSameInstance reports whether both are the same map or list in memory.
func IsSameInstance(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		m, ok := b.(map[string]any)
		return ok && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(m).UnsafePointer()
	case []any:
		l, ok := b.([]any)
		return ok && len(a) == len(l) && (len(a) == 0 || &a[0] == &l[0])
	}
	return false
}

const (
	maxQuantityBytes  = 64
	maxExponentDigits = 2
)

// ParseQuantity parses a quantity, from a string or a number. It rejects more than 64
// bytes, and exponents of more than two digits, on which package resource would spend
// seconds.
func ParseQuantity(v any) (resource.Quantity, bool) {
	if s, ok := v.(string); ok {
		return parseQuantityString(s)
	}
	if i, ok := AsInt64(v); ok {
		return *resource.NewQuantity(i, resource.DecimalSI), true
	}
	if _, ok := asFloat64(v); ok {
		written, err := json.Marshal(v)
		if err != nil { // NaN or infinite
			return resource.Quantity{}, false
		}
		return parseQuantityString(string(written))
	}
	return resource.Quantity{}, false
}

func parseQuantityString(s string) (resource.Quantity, bool) {
	if len(s) > maxQuantityBytes {
		return resource.Quantity{}, false
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 && len(strings.TrimLeft(s[i+1:], "+-0")) > maxExponentDigits {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(s)
	return q, err == nil
}

// EqualQuantities reports whether both are the same amount. "1" equals "1000m".
func EqualQuantities(a, b any) bool {
	if s, ok := a.(string); ok {
		if t, ok := b.(string); ok && s == t {
			return true
		}
	}
	p, ok := ParseQuantity(a)
	if !ok {
		return Equal(a, b)
	}
	q, ok := ParseQuantity(b)
	return ok && p.Cmp(q) == 0
}
