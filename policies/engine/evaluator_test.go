// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"
)

// evaluationLimit is the limit in these tests, in processor time.
const evaluationLimit = 40 * time.Millisecond

// evaluateFunctions evaluates a policy for each function, for objects of a project.
func evaluateFunctions(
	ctx context.Context, project string, policies []*policy, functions ...func(topdown.Cancel) error,
) []error {
	byPolicy := map[*policy]func(topdown.Cancel) error{}
	for i, p := range policies {
		byPolicy[p] = functions[i]
	}
	responses := evaluateInOrder(ctx, evaluationLimit, project, policies,
		func(_ context.Context, p *policy, cancel topdown.Cancel) (struct{}, error) {
			return struct{}{}, byPolicy[p](cancel)
		})
	var errs []error
	for _, r := range responses {
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

// computeUntil uses a processor and never asks whether it is canceled, as some built-in
// functions.
func computeUntil(stop *atomic.Bool) func(topdown.Cancel) error {
	return func(topdown.Cancel) error {
		for !stop.Load() {
		}
		return nil
	}
}

// wait waits without a processor for several times the limit.
func wait(cancel topdown.Cancel) error {
	<-time.After(5 * evaluationLimit)
	if cancel.Cancelled() {
		return ErrDeadline
	}
	return nil
}

func newPolicies(n int) []*policy {
	policies := make([]*policy, n)
	for i := range policies {
		policies[i] = &policy{}
	}
	return policies
}

func checkErrors(t *testing.T, got []error, want ...error) {
	t.Helper()
	for i := range want {
		if !errors.Is(got[i], want[i]) {
			t.Errorf("policy %d: %v, want %v", i, got[i], want[i])
		}
	}
}

// A policy that waits for a processor is not at fault, however long. Guards invariant 11 of the design.
func TestWaitingForProcessorIsNoPolicysFault(t *testing.T) {
	checkErrors(t, evaluateFunctions(t.Context(), "a", newPolicies(3), wait, pass, wait), nil, nil, nil)
}

func TestPolicyOverItsProcessorTimeIsCanceled(t *testing.T) {
	checkErrors(t, evaluateFunctions(t.Context(), "a", newPolicies(3), pass, compute, pass), nil, ErrDeadline, nil)
}

// A policy that cannot be stopped harms neither the policies after it nor other projects.
// Guards invariant 10 of the design.
func TestStuckPolicyHarmsNobodyElse(t *testing.T) {
	var stop atomic.Bool
	policies := newPolicies(3)
	stuck := computeUntil(&stop)
	checkErrors(t, evaluateFunctions(t.Context(), "a", policies, pass, stuck, pass), nil, ErrDeadline, nil)
	checkErrors(t, evaluateFunctions(t.Context(), "a", policies, pass, pass, pass), nil, ErrQuarantined, nil)
	checkErrors(t, evaluateFunctions(t.Context(), "b", policies, pass, pass, pass), nil, nil, nil)
	stop.Store(true)
	for policies[1].quarantine.check("a", false) != nil { // until the abandoned goroutine has ended
		time.Sleep(time.Millisecond)
	}
}

// Abandoned evaluations never pile up: each project has at most one of a policy, and all
// together at most maxStuckEvaluations. A built-in policy is then not at fault.
func TestStuckEvaluationsDoNotPileUp(t *testing.T) {
	var stop atomic.Bool
	defer stop.Store(true)
	policies := newPolicies(1)
	policies[0].source.BuiltIn = true
	for _, project := range []string{"a", "b", "c", "d"} {
		checkErrors(t, evaluateFunctions(t.Context(), project, policies, computeUntil(&stop)), ErrDeadline)
	}
	checkErrors(t, evaluateFunctions(t.Context(), "e", policies, pass), ErrBusy)
	policies[0].source.BuiltIn = false
	checkErrors(t, evaluateFunctions(t.Context(), "e", policies, pass), ErrQuarantined)
}

// The end of a request blames no policy, and leaves none out.
func TestEndOfRequestBlamesNoPolicy(t *testing.T) {
	ctx, endRequest := context.WithCancel(t.Context())
	waitForEnd := func(cancel topdown.Cancel) error {
		endRequest()
		for !cancel.Cancelled() {
			time.Sleep(time.Millisecond)
		}
		return wait(cancel)
	}
	policies := newPolicies(3)
	checkErrors(t, evaluateFunctions(ctx, "a", policies, pass, waitForEnd, pass), nil, ErrRequestDeadline, ErrRequestDeadline)
	checkErrors(t, evaluateFunctions(t.Context(), "a", policies, pass, pass, pass), nil, nil, nil)
}

// An abandoned evaluation that ends at the end of the request, before the next goroutine
// begins, ends nothing twice.
func TestAbandonedEvaluationEndsWithRequest(t *testing.T) {
	policies := newPolicies(2)
	r := &evaluator[struct{}]{
		policies: policies, project: "a", limit: evaluationLimit, done: make(chan struct{}), responses: make([]response[struct{}], 2),
		evaluate: func(context.Context, *policy, topdown.Cancel) (struct{}, error) { return struct{}{}, nil },
	}
	stuck := &policyEvaluation{policy: policies[0]}
	r.current.Store(stuck)
	if !r.abandon(stuck) || !r.abandonAll() {
		t.Fatal("not abandoned")
	}
	r.record(stuck, response[struct{}]{})
	r.run(t.Context(), 1)
	<-r.done
}

// An evaluation that ended just now never counts as stuck: it would for ever.
func TestEndedEvaluationIsNotStuck(t *testing.T) {
	policies := newPolicies(1)
	r := &evaluator[struct{}]{policies: policies, project: "a", done: make(chan struct{}), responses: make([]response[struct{}], 1)}
	last := &policyEvaluation{policy: policies[0]}
	r.current.Store(last)
	r.abandonAll()
	r.record(last, response[struct{}]{})
	r.abandon(last)
	if err := policies[0].quarantine.check("a", false); err != nil {
		t.Error(err)
	}
}

// A long evaluation makes room for others while it runs, so that one project's policy does not slow down the requests of others
// on a machine with few processors. Guards invariant 10 of the design.
func TestLongEvaluationYields(t *testing.T) {
	processors := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(processors) })
	const yields = 100
	evaluated := make(chan error, 1)
	go func() {
		evaluated <- evaluateFunctions(t.Context(), "a", []*policy{{}}, func(cancel topdown.Cancel) error {
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
