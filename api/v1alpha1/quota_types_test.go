// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Protects invariant 11: the summary names the pool that exceeds its limit, which a sum hides.
func TestSummarizePools(t *testing.T) {
	pool := func(name, allocated, limit string) PoolUsage {
		return PoolUsage{Name: name, GPUUsage: GPUUsage{Allocated: resource.MustParse(allocated), Limit: resource.MustParse(limit)}}
	}
	tests := map[string]struct {
		pools []PoolUsage
		want  string
	}{
		"none":                     {nil, ""},
		"one":                      {[]PoolUsage{pool("dgx", "125m", "1")}, "dgx 125m/1"},
		"idle, in order":           {[]PoolUsage{pool("b", "0", "8"), pool("a", "0", "1")}, "b 0/8, a 0/1"},
		"an overrun first":         {[]PoolUsage{pool("mig", "1", "4"), pool("dgx", "9", "8")}, "dgx 9/8, mig 1/4"},
		"a limit of zero is least": {[]PoolUsage{pool("dgx", "9", "8"), pool("old", "500m", "0"), pool("mig", "0", "0")}, "old 500m/0, dgx 9/8, mig 0/0"},
		"many": {
			[]PoolUsage{pool("a", "0", "1"), pool("b", "1", "4"), pool("c", "1", "3"), pool("d", "0", "9"), pool("e", "1", "2")},
			"e 1/2, c 1/3, b 1/4, +2",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := SummarizePools(tc.pools); got != tc.want {
				t.Errorf("summary %q, want %q", got, tc.want)
			}
		})
	}
}
