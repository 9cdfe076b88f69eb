// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package value

import (
	"encoding/json"
	"math"
	"reflect"
)

// Text returns the string, and empty for all else.
func Text(v any) string {
	s, _ := v.(string)
	return s
}

// Map returns the object, and nil for all else.
func Map(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// List returns the list, and nil for all else.
func List(v any) []any {
	l, _ := v.([]any)
	return l
}

// Whole returns a number without fraction that fits 64 bits; 2.0 is one.
func Whole(v any) (int64, bool) {
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

// number returns any number.
func number(v any) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	if n, ok := v.(json.Number); ok {
		f, err := n.Float64()
		return f, err == nil
	}
	i, ok := Whole(v)
	return float64(i), ok
}

// Equal tells whether both are the same JSON: 2 and 2.0 are.
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
	if i, ok := Whole(a); ok {
		j, ok := Whole(b)
		return ok && i == j
	}
	if f, ok := number(a); ok {
		if _, whole := Whole(b); whole {
			return false
		}
		g, ok := number(b)
		return ok && f == g
	}
	return reflect.DeepEqual(a, b) // nothing that a JSON decoder makes
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

// Same tells whether both are one and the same map or list in memory, so that
// nothing needs to be compared.
func Same(a, b any) bool {
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
