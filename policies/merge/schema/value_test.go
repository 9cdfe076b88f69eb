// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"encoding/json"
	"math"
	"testing"
)

type jsonObject = map[string]any

func TestEqual(t *testing.T) {
	tests := []struct {
		a, b any
		want bool
	}{
		{nil, nil, true},
		{nil, "", false},
		{"a", "a", true},
		{"1", int64(1), false},
		{true, true, true},
		{true, "true", false},
		{int64(2), 2.0, true},
		{2, json.Number("2"), true},
		{int64(2), 2.5, false},
		{2.5, json.Number("2.5"), true},
		{int64(math.MaxInt64), float64(math.MaxInt64), false},
		{math.NaN(), math.NaN(), false},
		{jsonObject{"a": int64(1)}, jsonObject{"a": 1.0}, true},
		{jsonObject{"a": nil}, jsonObject{"b": nil}, false},
		{jsonObject{}, []any{}, false},
		{[]any{"a", nil}, []any{"a", nil}, true},
		{[]any{"a"}, []any{"a", "b"}, false},
		{struct{ a []int }{[]int{1}}, struct{ a []int }{[]int{1}}, true},
	}
	for _, tt := range tests {
		if got := Equal(tt.a, tt.b); got != tt.want {
			t.Errorf("Equal(%v, %v) = %v", tt.a, tt.b, got)
		}
		if got := Equal(tt.b, tt.a); got != tt.want {
			t.Errorf("Equal(%v, %v) = %v", tt.b, tt.a, got)
		}
	}
}

func TestEqualQuantities(t *testing.T) {
	tests := []struct {
		a, b any
		want bool
	}{
		{"1", "1000m", true},
		{"1", int64(1), true},
		{"500m", 0.5, true},
		{"1Gi", "1024Mi", true},
		{"1G", "1Gi", false},
		{"lots", "lots", true},
		{"lots", "more", false},
		{"1", "lots", false},
		{"1", nil, false},
		{"1e3", "1k", true},
		{"1e1000000000", "1e1000000000", true},
		{"1e1000000000", "1e1000000001", false},
		{"1e-1000000000", "1", false},
		{math.Inf(1), "1", false},
		{jsonObject{}, "1", false},
	}
	for _, tt := range tests {
		if got := EqualQuantities(tt.a, tt.b); got != tt.want {
			t.Errorf("SameQuantity(%v, %v) = %v", tt.a, tt.b, got)
		}
		if got := EqualQuantities(tt.b, tt.a); got != tt.want {
			t.Errorf("SameQuantity(%v, %v) = %v", tt.b, tt.a, got)
		}
	}
}

func TestIsSameInstance(t *testing.T) {
	m, l := jsonObject{"a": 1}, []any{1, 2}
	tests := []struct {
		a, b any
		want bool
	}{
		{m, m, true},
		{m, jsonObject{"a": 1}, false},
		{l, l, true},
		{l, l[:1], false},
		{l, []any{1, 2}, false},
		{"a", "a", false},
		{m, l, false},
	}
	for _, tt := range tests {
		if got := IsSameInstance(tt.a, tt.b); got != tt.want {
			t.Errorf("Same(%v, %v) = %v", tt.a, tt.b, got)
		}
	}
}
