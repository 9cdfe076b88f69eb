// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/api/policytime"
)

// policyEvaluation is the evaluation of one policy. OPA checks before every expression
// whether it is canceled.
type policyEvaluation struct {
	index     int
	startTime time.Time
	canceled  atomic.Bool
}

var _ topdown.Cancel = (*policyEvaluation)(nil)

// Cancel cancels the evaluation.
func (t *policyEvaluation) Cancel() { t.canceled.Store(true) }

// Cancelled reports whether the evaluation is canceled.
func (t *policyEvaluation) Cancelled() bool { return t.canceled.Load() }

// response is the response of one policy.
type response[T any] struct {
	value    T
	err      error
	duration time.Duration
	// cached: the value came from the cache.
	cached bool
}

// evaluator evaluates policies one after another on a goroutine of its own, while the
// caller's goroutine watches the time. Some built-in functions, such as a costly pattern
// on a long text, never check for cancellation. A policy inside one at twice its time
// limit is abandoned with its goroutine, and another goroutine continues with the next
// policy. So a response comes in time whatever a policy does.
type evaluator[T any] struct {
	policies []*policy
	evaluate func(context.Context, *policy, topdown.Cancel) (T, error)
	limit    time.Duration
	current  atomic.Pointer[policyEvaluation]
	ended    atomic.Bool
	done     chan struct{}

	// mu guards what an abandoned goroutine must no longer write.
	mu        sync.Mutex
	responses []response[T]
	// completed is the number of policies with a response; -1 after all were abandoned.
	completed int
}

// evaluateInOrder evaluates all policies and returns a response for each. It takes at
// most one evaluation limit longer than the context.
func evaluateInOrder[T any](ctx context.Context, limit time.Duration, policies []*policy,
	evaluate func(context.Context, *policy, topdown.Cancel) (T, error),
) []response[T] {
	if len(policies) == 0 {
		return nil
	}
	r := &evaluator[T]{
		policies: policies, evaluate: evaluate, limit: limit,
		done: make(chan struct{}), responses: make([]response[T], len(policies)),
	}
	go r.run(ctx, 0)
	r.watch(ctx)
	return r.responses
}

// run evaluates the policies from an index on, until all are done or the goroutine is
// abandoned.
func (r *evaluator[T]) run(ctx context.Context, from int) {
	for i := from; i < len(r.policies); i++ {
		t := &policyEvaluation{index: i, startTime: policytime.MachineNow()}
		r.current.Store(t)
		result := r.evaluateOne(ctx, t)
		r.mu.Lock()
		abandoned := r.completed != i
		if !abandoned {
			r.responses[i] = result
			r.completed++
		}
		r.mu.Unlock()
		if abandoned {
			r.policies[i].stuckEvaluations.Add(-1)
			return
		}
	}
	close(r.done)
}

func (r *evaluator[T]) evaluateOne(ctx context.Context, t *policyEvaluation) (result response[T]) {
	p := r.policies[t.index]
	// watch sets ended before it cancels an evaluation.
	switch {
	case r.ended.Load():
		result.err = ErrRequestDeadline
	case p.stuckEvaluations.Load() > 0:
		result.err = ErrBusy
	default:
		result.value, result.err = r.evaluate(ctx, p, t)
	}
	result.duration = policytime.MachineNow().Sub(t.startTime)
	if errors.Is(result.err, ErrDeadline) && r.ended.Load() {
		result.err = ErrRequestDeadline
	}
	return result
}

// ticksPerLimit is the number of ticks within the time limit of an evaluation.
const ticksPerLimit = 8

// watch cancels evaluations that take too long, and returns when every policy has a
// response.
//
// It counts its own ticks during an evaluation instead of measuring time. If the whole
// process stops, for lack of CPU or while the machine sleeps, that counts as one tick,
// and the policy is not to blame.
func (r *evaluator[T]) watch(ctx context.Context) {
	ticker := time.NewTicker(max(r.limit/ticksPerLimit, time.Millisecond)) //nolint:forbidigo // machine time: how long an evaluation takes
	defer ticker.Stop()
	var watched *policyEvaluation
	ticks := 0
	ended := ctx.Done()
	for {
		select {
		case <-r.done:
			return
		case <-ended:
			ended = nil
			r.ended.Store(true)
			if t := r.current.Load(); t != nil {
				t.Cancel()
			}
			ticks = 0
			continue
		case <-ticker.C:
		}
		if ended == nil {
			if ticks++; ticks > ticksPerLimit {
				r.abandonAll()
				return
			}
			continue
		}
		t := r.current.Load()
		if t != watched {
			watched, ticks = t, 0
			continue
		}
		ticks++
		switch {
		case t == nil:
		case ticks == ticksPerLimit:
			t.Cancel()
		case ticks >= 2*ticksPerLimit && r.abandon(t.index):
			go r.run(ctx, t.index+1)
		}
	}
}

// abandon responds for a policy whose goroutine is stuck. It returns false if the
// evaluation finished in the meantime.
func (r *evaluator[T]) abandon(index int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.completed != index {
		return false
	}
	r.policies[index].stuckEvaluations.Add(1)
	r.responses[index] = response[T]{err: ErrDeadline, duration: policytime.MachineNow().Sub(r.current.Load().startTime)}
	r.completed++
	return true
}

// abandonAll responds for every policy without a response, and abandons the goroutine.
func (r *evaluator[T]) abandonAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.completed; i < len(r.policies); i++ {
		r.responses[i] = response[T]{err: ErrRequestDeadline}
	}
	if r.completed < len(r.policies) {
		r.policies[r.completed].stuckEvaluations.Add(1)
		r.completed = -1
	}
}
