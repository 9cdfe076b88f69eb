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

// policyEvaluation is the evaluation of one policy. It is what OPA asks, before every
// expression, whether to stop.
type policyEvaluation struct {
	index     int
	startTime time.Time
	canceled  atomic.Bool
}

var _ topdown.Cancel = (*policyEvaluation)(nil)

// Cancel ends the turn.
func (t *policyEvaluation) Cancel() { t.canceled.Store(true) }

// Cancelled tells whether the turn was ended.
func (t *policyEvaluation) Cancelled() bool { return t.canceled.Load() }

// response is what came of one turn.
type response[T any] struct {
	value    T
	err      error
	duration time.Duration
	// cached: the policy was not asked, its answer was remembered.
	cached bool
}

// evaluator asks policies one after another, on a goroutine of its own, while the
// caller's watches the clock. Some built-in functions, such as a costly pattern
// on a long text, do not ask whether to stop: a policy that is in one at twice
// its deadline is left behind with its goroutine, and another goroutine goes on
// with the next policy. So an answer comes in time whatever a policy does.
type evaluator[T any] struct {
	policies []*policy
	evaluate func(context.Context, *policy, topdown.Cancel) (T, error)
	limit    time.Duration
	current  atomic.Pointer[policyEvaluation]
	ended    atomic.Bool
	done     chan struct{}

	// mu guards what a goroutine left behind must no longer touch.
	mu        sync.Mutex
	responses []response[T]
	// completed is how many policies have a reply.
	completed int
}

// evaluateInOrder asks all policies and returns a reply for each. It takes at most as
// long as the context has, and one evaluation's limit more.
func evaluateInOrder[T any](ctx context.Context, limit time.Duration, policies []*policy,
	ask func(context.Context, *policy, topdown.Cancel) (T, error),
) []response[T] {
	if len(policies) == 0 {
		return nil
	}
	r := &evaluator[T]{
		policies: policies, evaluate: ask, limit: limit,
		done: make(chan struct{}), responses: make([]response[T], len(policies)),
	}
	go r.run(ctx, 0)
	r.watch(ctx)
	return r.responses
}

// run asks the policies from one place on, until the round is over or the
// goroutine is left behind.
func (r *evaluator[T]) run(ctx context.Context, from int) {
	for place := from; place < len(r.policies); place++ {
		t := &policyEvaluation{index: place, startTime: policytime.MachineNow()}
		r.current.Store(t)
		given := r.evaluateOne(ctx, t)
		r.mu.Lock()
		behind := r.completed != place
		if !behind {
			r.responses[place] = given
			r.completed++
		}
		r.mu.Unlock()
		if behind {
			r.policies[place].stuckEvaluations.Add(-1)
			return
		}
	}
	close(r.done)
}

func (r *evaluator[T]) evaluateOne(ctx context.Context, t *policyEvaluation) (given response[T]) {
	p := r.policies[t.index]
	// In this order: whoever ends the round sets over before it ends the turn.
	switch {
	case r.ended.Load():
		given.err = ErrRequestDeadline
	case p.stuckEvaluations.Load() > 0:
		given.err = ErrBusy
	default:
		given.value, given.err = r.evaluate(ctx, p, t)
	}
	given.duration = policytime.MachineNow().Sub(t.startTime)
	if errors.Is(given.err, ErrDeadline) && r.ended.Load() {
		given.err = ErrRequestDeadline
	}
	return given
}

// ticksPerLimit is how finely the watch looks at a turn.
const ticksPerLimit = 8

// watch ends turns that take too long, and returns when every policy has its
// reply.
//
// It counts how often it woke during a turn instead of asking how long ago the
// turn began: where the whole process stood still, for want of processors or
// while its machine slept, that is one tick however long, and no policy's fault.
func (r *evaluator[T]) watch(ctx context.Context) {
	ticker := time.NewTicker(max(r.limit/ticksPerLimit, time.Millisecond)) //nolint:forbidigo // machine time: how long an evaluation takes
	defer ticker.Stop()
	var seen *policyEvaluation
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
		if t != seen {
			seen, ticks = t, 0
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

// abandon gives a policy its reply in place of the goroutine that is stuck in it.
// It reports false where that one came back just now.
func (r *evaluator[T]) abandon(place int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.completed != place {
		return false
	}
	r.policies[place].stuckEvaluations.Add(1)
	r.responses[place] = response[T]{err: ErrDeadline, duration: policytime.MachineNow().Sub(r.current.Load().startTime)}
	r.completed++
	return true
}

// abandonAll gives every policy that has none yet its reply, and leaves the
// goroutine behind.
func (r *evaluator[T]) abandonAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for place := r.completed; place < len(r.policies); place++ {
		r.responses[place] = response[T]{err: ErrRequestDeadline}
	}
	if r.completed < len(r.policies) {
		r.policies[r.completed].stuckEvaluations.Add(1)
		r.completed = -1
	}
}
