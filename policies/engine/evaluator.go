// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"

	"sluice.dev/api/policytime"
)

// policyEvaluation is the evaluation of one policy. OPA checks before every expression
// whether it is canceled.
type policyEvaluation struct {
	policy    *policy
	index     int
	timer     *threadTimer
	startTime time.Time
	canceled  atomic.Bool
	checks    int // used by the goroutine of the evaluation alone
	// overran: it exceeded its limit.
	overran atomic.Bool
	sizes   valueSizes
	stuck   bool // guarded by the evaluator's mu
	ended   bool // guarded by the evaluator's mu
}

var _ topdown.Cancel = (*policyEvaluation)(nil)

// Cancel cancels the evaluation.
func (t *policyEvaluation) Cancel() { t.canceled.Store(true) }

// Cancelled reports whether the evaluation is canceled. OPA calls it on the goroutine of the evaluation, which makes room for
// others from time to time: Go interrupts it only every ten milliseconds.
func (t *policyEvaluation) Cancelled() bool {
	if t.checks++; t.checks%checksPerYield == 0 {
		runtime.Gosched()
	}
	return t.canceled.Load()
}

// checksPerYield is the number of expressions, of about a microsecond each, between two yields of an evaluation.
const checksPerYield = 1000

// response is the response of one policy.
type response[T any] struct {
	value    T
	err      error
	duration time.Duration
	// cached: the value came from the cache.
	cached bool
}

// evaluator evaluates policies one after another on a goroutine of its own, while the
// caller's goroutine watches how much processor time each one uses. An evaluation that
// waits for a processor uses none, so that a busy machine is no policy's fault.
//
// Some built-in functions, such as a costly pattern on a long text, never check for
// cancellation. A policy inside one at twice its limit is abandoned with its goroutine,
// and another goroutine continues with the next policy. So a response comes in time
// whatever a policy does.
type evaluator[T any] struct {
	policies []*policy
	project  string
	evaluate func(context.Context, *policy, topdown.Cancel) (T, error)
	limit    time.Duration
	current  atomic.Pointer[policyEvaluation]
	// deadlinePassed: the request ended, and what is not evaluated yet never will be.
	deadlinePassed atomic.Bool
	done           chan struct{}

	// mu guards what an abandoned goroutine must no longer write.
	mu        sync.Mutex
	responses []response[T]
	// completed is the number of policies with a response; -1 after all were abandoned.
	completed int
	// closed: done is closed, after all were abandoned.
	closed bool
}

// evaluateInOrder evaluates all policies for an object of a project, and returns a response
// for each. It takes at most about one evaluation limit longer than the context.
func evaluateInOrder[T any](ctx context.Context, limit time.Duration, project string, policies []*policy,
	evaluate func(context.Context, *policy, topdown.Cancel) (T, error),
) []response[T] {
	if len(policies) == 0 {
		return nil
	}
	r := &evaluator[T]{
		policies: policies, project: project, evaluate: evaluate, limit: limit,
		done: make(chan struct{}), responses: make([]response[T], len(policies)),
	}
	go r.run(ctx, 0)
	r.watch(ctx)
	return r.responses
}

// run evaluates the policies from an index on, until all are done or the goroutine is
// abandoned.
func (r *evaluator[T]) run(ctx context.Context, from int) {
	growStack(from)
	timer, release := newThreadTimer()
	defer release()
	for i := from; i < len(r.policies); i++ {
		t := &policyEvaluation{policy: r.policies[i], index: i, timer: timer, startTime: policytime.MachineNow(), sizes: valueSizes{}}
		r.current.Store(t)
		if !r.record(t, r.evaluateOne(ctx, t)) {
			return
		}
	}
	close(r.done)
}

// evaluationStackBytes is the stack that most evaluations need.
const evaluationStackBytes = 128 << 10

// growStack grows the stack of the goroutine while it is almost empty. Go otherwise doubles the stack several times in the depth of an
// evaluation and copies all frames each time, which takes an eighth of the processor time of evaluations. The index is any.
//
//go:noinline
func growStack(index int) byte {
	var frames [evaluationStackBytes]byte
	return frames[index%len(frames)]
}

func (r *evaluator[T]) evaluateOne(ctx context.Context, t *policyEvaluation) (result response[T]) {
	// watch sets deadlinePassed before it cancels an evaluation.
	if r.deadlinePassed.Load() {
		result.err = ErrRequestDeadline
	} else if result.err = t.policy.quarantine.check(r.project, t.policy.source.BuiltIn); result.err == nil {
		result.value, result.err = r.evaluate(ctx, t.policy, t)
	}
	if errors.Is(result.err, ErrDeadline) && !t.overran.Load() {
		result.err = ErrRequestDeadline
	}
	result.duration = policytime.MachineNow().Sub(t.startTime)
	return result
}

// record records a response, and reports whether the goroutine goes on.
func (r *evaluator[T]) record(t *policyEvaluation, result response[T]) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.ended = true
	if t.stuck {
		t.policy.quarantine.finishStuck(r.project)
	}
	switch r.completed {
	case t.index:
		r.responses[t.index] = result
		r.completed++
		return true
	case -1:
		if r.current.Load() == t && !r.closed {
			r.closed = true // the next goroutine may not have begun
			close(r.done)
		}
	}
	return false
}

// ticksPerLimit is the number of ticks within the limit of an evaluation.
const ticksPerLimit = 8

// watch cancels evaluations that exceed their limit, and returns when every policy has a
// response.
func (r *evaluator[T]) watch(ctx context.Context) {
	ticker := time.NewTicker(max(r.limit/ticksPerLimit, time.Millisecond)) //nolint:forbidigo // machine time: how often to look
	defer ticker.Stop()
	var (
		w       = watcher[T]{evaluator: r}
		request = ctx.Done()
		// ticks counts those since the end of the request. If the whole process stops, for
		// lack of processors or while the machine sleeps, that is one tick.
		ticks int
	)
	for {
		select {
		case <-r.done:
			return
		case <-request:
			request = nil
			r.deadlinePassed.Store(true)
			if t := r.current.Load(); t != nil {
				t.Cancel()
			}
		case <-ticker.C:
			if w.check() {
				go r.run(ctx, w.watched.index+1)
			}
			if request != nil {
				continue
			}
			if ticks++; ticks > ticksPerLimit && r.abandonAll() {
				go w.watchAbandoned()
				return
			}
		}
	}
}

// watcher measures the processor time of the current evaluation.
type watcher[T any] struct {
	*evaluator[T]
	watched *policyEvaluation
	begin   time.Duration
}

// check cancels the current evaluation at its limit, and abandons it at twice the limit. It
// reports whether the caller starts the next evaluation on another goroutine.
func (w *watcher[T]) check() bool {
	t := w.current.Load()
	if t == nil {
		return false
	}
	if t != w.watched {
		w.watched, w.begin = t, t.timer.used()
		return false
	}
	used := t.timer.used() - w.begin
	if used >= w.limit && t.overran.CompareAndSwap(false, true) {
		t.policy.quarantine.addOverrun(w.project)
		t.Cancel()
	}
	return used >= 2*w.limit && w.abandon(t)
}

// watchAbandoned checks an evaluation whose request is over until it ends.
func (w *watcher[T]) watchAbandoned() {
	ticker := time.NewTicker(w.limit) //nolint:forbidigo // machine time: how often to look
	defer ticker.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-ticker.C:
			w.check()
		}
	}
}

// abandon responds for a policy whose goroutine is stuck. It reports whether the caller starts
// the next evaluation.
func (r *evaluator[T]) abandon(t *policyEvaluation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.stuck || t.ended || r.completed != t.index && r.completed != -1 {
		return false
	}
	t.stuck = true
	t.policy.quarantine.addStuck(r.project)
	if r.completed == -1 {
		return false
	}
	r.responses[t.index] = response[T]{err: ErrDeadline, duration: policytime.MachineNow().Sub(t.startTime)}
	r.completed++
	return true
}

// abandonAll responds for every policy without a response, and reports whether there is
// one.
func (r *evaluator[T]) abandonAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.completed == len(r.policies) {
		return false
	}
	for i := r.completed; i < len(r.policies); i++ {
		r.responses[i] = response[T]{err: ErrRequestDeadline}
	}
	r.completed = -1
	return true
}
