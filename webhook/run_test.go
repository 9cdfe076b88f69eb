// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"runtime/debug"
	"testing"
)

// The webhook collects garbage rarely while it takes little memory, so that one project's policy does not slow down the requests
// of others; the environment of its container takes precedence. Guards invariant 10 of the design.
func TestGarbageCollectionIsLimited(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) })
	for _, tt := range []struct {
		environment string
		percent     int
		limit       int64
	}{
		{"", gcPercent, softMemoryLimit},
		{"set", 100, 1 << 30},
	} {
		t.Setenv("GOGC", tt.environment)
		t.Setenv("GOMEMLIMIT", tt.environment)
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(1 << 30)
		limitGarbageCollection()
		if percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1); percent != tt.percent || limit != tt.limit {
			t.Errorf("GOGC %q: %d percent below %d bytes, want %d below %d", tt.environment, percent, limit, tt.percent, tt.limit)
		}
	}
}
