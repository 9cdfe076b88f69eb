// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"
)

// evaluationLimit is the limit in these tests.
const evaluationLimit = 40 * time.Millisecond

// evaluateFunctions evaluates a policy for each function.
func evaluateFunctions(ctx context.Context, functions ...func(topdown.Cancel) error) []error {
	policies := make([]*policy, len(functions))
	byPolicy := map[*policy]func(topdown.Cancel) error{}
	for i, function := range functions {
		policies[i] = &policy{}
		byPolicy[policies[i]] = function
	}
	var errs []error
	for _, r := range evaluateInOrder(ctx, evaluationLimit, policies,
		func(_ context.Context, p *policy, cancel topdown.Cancel) (struct{}, error) {
			return struct{}{}, byPolicy[p](cancel)
		}) {
		errs = append(errs, r.err)
	}
	return errs
}

func pass(topdown.Cancel) error { return nil }

// compute uses a processor until it is canceled, as OPA does in a long evaluation.
func compute(cancel topdown.Cancel) error {
	for !cancel.Cancelled() {
	}
	return ErrDeadline
}

// wait waits without a processor until it is canceled.
func wait(cancel topdown.Cancel) error {
	for !cancel.Cancelled() {
		time.Sleep(time.Millisecond)
	}
	return ErrDeadline
}

func checkErrors(t *testing.T, got []error, want ...error) {
	t.Helper()
	for i := range want {
		if !errors.Is(got[i], want[i]) {
			t.Errorf("policy %d: %v, want %v", i, got[i], want[i])
		}
	}
}

// A policy that waits for a processor is not at fault. Guards invariant 11 of the design.
func TestWaitingForProcessorIsNoPolicysFault(t *testing.T) {
	checkErrors(t, evaluateFunctions(t.Context(), pass, wait, pass), nil, ErrBusy, nil)
}

// One that computes all the time is, and only that one.
func TestPolicyOverItsTimeIsCanceled(t *testing.T) {
	for {
		got := evaluateFunctions(t.Context(), pass, compute, pass)
		if errors.Is(got[1], ErrBusy) { // other programs use the machine
			continue
		}
		checkErrors(t, got, nil, ErrDeadline, nil)
		return
	}
}

// Evaluations at the same time share the processors, and what the process worked for one of them it did not for the other.
func TestEvaluationsShareTheProcessors(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, tc := range map[string]struct {
		evaluations int
		processors  time.Duration
		worked      bool
	}{
		"one with a processor":              {1, limit, true},
		"one with most of a processor":      {1, limit * 4 / 5, true},
		"one with half a processor":         {1, limit / 2, false},
		"four with two processors":          {4, 2 * limit, false},
		"four with four processors":         {4, 4 * limit, true},
		"one, and a garbage collector more": {1, 2 * limit, true},
	} {
		start := instant{together: time.Hour, processors: time.Hour}
		end := instant{together: time.Hour + time.Duration(tc.evaluations)*limit}
		if got := start.worked(end, time.Hour+tc.processors); got != tc.worked {
			t.Errorf("%s: worked %t, want %t", name, got, tc.worked)
		}
	}
	var e evaluations
	first := e.begin()
	e.begin()
	e.changed = e.changed.Add(-limit)
	e.end()
	e.changed = e.changed.Add(-limit)
	if together := e.end().together - first.together; together < 3*limit {
		t.Errorf("%s together, want at least %s", together, 3*limit)
	}
	if e.number != 0 {
		t.Errorf("%d evaluations run", e.number)
	}
}

// The end of a request blames no policy, and leaves none out.
func TestEndOfRequestBlamesNoPolicy(t *testing.T) {
	ctx, endRequest := context.WithCancel(t.Context())
	computeAfterEnd := func(cancel topdown.Cancel) error {
		endRequest()
		return compute(cancel)
	}
	checkErrors(t, evaluateFunctions(ctx, pass, computeAfterEnd, pass), nil, ErrRequestDeadline, ErrRequestDeadline)
}

// A long evaluation makes room for others while it runs, so that one project's policy does not slow down the requests of others
// on a machine with few processors. Guards invariant 10 of the design.
func TestLongEvaluationYields(t *testing.T) {
	processors := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(processors) })
	const yields = 100
	evaluated := make(chan error, 1)
	go func() {
		evaluated <- evaluateFunctions(t.Context(), func(cancel topdown.Cancel) error {
			for range yields * checksPerYield {
				cancel.Cancelled()
			}
			return nil
		})[0]
	}()
	for turns := 0; ; turns++ {
		select {
		case err := <-evaluated:
			if err != nil || turns < yields {
				t.Errorf("other goroutines had %d turns, want at least %d; %v", turns, yields, err)
			}
			return
		default:
			runtime.Gosched()
		}
	}
}
