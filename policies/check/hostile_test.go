// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/policies/engine"
	"sluice.dev/test/corpus"
)

// Every text is checked in bounded time and memory, and the next check works. Guards invariant 10 of the design.
func TestHostileTextsEndTheirCheckOnly(t *testing.T) {
	process := newProcess(t)
	for name, tt := range corpus.PolicyTexts() {
		t.Run(name, func(t *testing.T) {
			before := childUsage(t)
			result, err := process.Check(t.Context(), engine.Source{Name: "hostile", Rego: tt.Rego}, Environment{})
			if err != nil {
				t.Fatal(err)
			}
			after := childUsage(t)
			if used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()); used > 5*time.Second {
				t.Errorf("the check used %s of processor time", used)
			}
			if peak := after.Maxrss << 10; peak > 400<<20 {
				t.Errorf("the check used %d MiB of memory", peak>>20)
			}
			got := strings.Join(messages(result.Problems), "\n")
			if tt.Problem == "-" && got != "" || tt.Problem != "-" && !strings.Contains(got, tt.Problem) {
				t.Errorf("problems: %.300s; want %q", got, tt.Problem)
			}
			if len(got) > 1<<20 {
				t.Errorf("%d bytes of problems", len(got))
			}
		})
	}
	plain := engine.Source{Name: "p", Rego: "package p\ndeny contains \"x\"\n"}
	if result, err := process.Check(t.Context(), plain, Environment{}); err != nil || len(result.Problems) > 0 {
		t.Errorf("a plain policy afterwards: %+v, %v", result, err)
	}
}
