// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/policies/engine"
	"sluice.dev/test/corpus"
)

func TestMain(m *testing.M) {
	RunIfChild()
	os.Exit(m.Run())
}

func newProcess(t *testing.T) *Process {
	t.Helper()
	process, err := NewProcess(DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// A policy of less than 870 bytes that exhausts the compiler ends its child only. Guards
// invariant 10 of the design: no object makes the webhook do more than bounded work.
func TestSmallPolicyThatExhaustsTheCompilerIsRefused(t *testing.T) {
	for name, rego := range corpus.ExhaustingPolicies() {
		t.Run(name, func(t *testing.T) {
			if len(rego) > 870 {
				t.Fatalf("the policy has %d bytes", len(rego))
			}
			before := childUsage(t)
			result, err := newProcess(t).Check(t.Context(), engine.Source{Name: "bomb", Rego: rego}, Environment{})
			if err != nil {
				t.Fatal(err)
			}
			const want = "bomb: the policy cannot be compiled: it needs more than "
			if !result.Exhausted || len(result.Problems) != 1 || !strings.HasPrefix(result.Problems[0].Error(), want) {
				t.Errorf("result: %+v; want %s", result, want)
			}
			after := childUsage(t)
			if used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()); used > 5*time.Second {
				t.Errorf("the child used %s of processor time", used)
			}
			const kibibytes = 1 << 10
			if peak := after.Maxrss * kibibytes; peak > 400<<20 {
				t.Errorf("the child used %d MiB of memory", peak>>20)
			}
		})
	}
}

// childUsage returns what the children of this process have used: the sum of their times, and
// the peak of the largest.
func childUsage(t *testing.T) syscall.Rusage {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	return usage
}

// Each policy gets its own result, also after one that ends the child.
func TestCompileContinuesAfterAPolicyThatEndsTheChild(t *testing.T) {
	good := engine.Source{Name: "good", Rego: "package a\ndeny contains \"x\"\n"}
	broken := engine.Source{Name: "broken", Rego: "package a\ndeny contains\n"}
	bomb := engine.Source{Name: "bomb", Rego: corpus.ExhaustingPolicies()["nested comprehensions"]}
	results, err := newProcess(t).Compile(t.Context(), []engine.Source{good, bomb, broken, good})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		refused, exhausted bool
	}{{false, false}, {true, true}, {true, false}, {false, false}} {
		if refused := len(results[i].Problems) > 0; refused != want.refused || results[i].Exhausted != want.exhausted {
			t.Errorf("result %d: %+v; want %+v", i, results[i], want)
		}
	}
}

// The child finds what a check in this process finds.
func TestProcessAgreesWithCheck(t *testing.T) {
	source := engine.Source{
		Name: "p", Rego: "package p\ndeny contains \"x\" if input.workload.gpu > 1\n",
		Parameters: []byte(`{"a": 1}`), Generation: 3,
	}
	result, err := newProcess(t).Check(t.Context(), source, Environment{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := messages(result.Problems), messages(Check(source).Problems); len(want) != 1 || strings.Join(got, "\n") != want[0] {
		t.Errorf("the child reports %q, want %q", got, want)
	}
}

// A check that cannot start, or whose request ends, is not the policy's fault.
func TestProcessErrorIsNotThePolicysFault(t *testing.T) {
	source := engine.Source{Name: "p", Rego: "package p\n"}
	missing := newProcess(t)
	missing.executable = "/does/not/exist"
	if _, err := missing.Check(t.Context(), source, Environment{}); err == nil {
		t.Error("no error without a program")
	}
	tiny := newProcess(t)
	tiny.limits.MemoryBytes = 4 << 20 // too little for the child itself
	if result, err := tiny.Check(t.Context(), source, Environment{}); err == nil {
		t.Errorf("a child without memory blames the policy: %+v", result)
	}
	busy := newProcess(t)
	busy.slot <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := busy.Check(ctx, source, Environment{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the deadline", err)
	}
}

// A child that is killed from outside, as when its container has no memory left, is not the policy's fault.
// Guards invariant 11 of the design: what a message says is true.
func TestKilledChildIsNotThePolicysFault(t *testing.T) {
	process := newProcess(t)
	program := filepath.Join(t.TempDir(), "killed")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ncat >/dev/null\necho '{}'\nkill -KILL $$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	process.executable = program
	result, err := process.Check(t.Context(), engine.Source{Name: "p", Rego: "package p\n"}, Environment{})
	if err == nil || !strings.Contains(err.Error(), "was killed, probably since its container has no memory left: try again") {
		t.Errorf("result %+v, error %v", result, err)
	}
}

// The cost of a check with its process.
func BenchmarkProcess(b *testing.B) {
	process, err := NewProcess(DefaultLimits)
	if err != nil {
		b.Fatal(err)
	}
	source := engine.Source{Name: "p", Rego: "package p\ndeny contains \"x\" if input.workload.gpus > 1\n"}
	for b.Loop() {
		if result, err := process.Check(b.Context(), source, Environment{}); err != nil || len(result.Problems) > 0 {
			b.Fatal(result, err)
		}
	}
}
