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

	"sluice.dev/api/clock"
)

// turn is the evaluation of one policy. It is what OPA asks, before every
// expression, whether to stop.
type turn struct {
	place   int
	began   time.Time
	stopped atomic.Bool
}

var _ topdown.Cancel = (*turn)(nil)

// Cancel ends the turn.
func (t *turn) Cancel() { t.stopped.Store(true) }

// Cancelled tells whether the turn was ended.
func (t *turn) Cancelled() bool { return t.stopped.Load() }

// reply is what came of one turn.
type reply[T any] struct {
	value T
	err   error
	took  time.Duration
	// recalled: the policy was not asked, its answer was remembered.
	recalled bool
}

// round asks policies one after another, on a goroutine of its own, while the
// caller's watches the clock. Some built-in functions, such as a costly pattern
// on a long text, do not ask whether to stop: a policy that is in one at twice
// its deadline is left behind with its goroutine, and another goroutine goes on
// with the next policy. So an answer comes in time whatever a policy does.
type round[T any] struct {
	policies []*policy
	ask      func(context.Context, *policy, topdown.Cancel) (T, error)
	limit    time.Duration
	current  atomic.Pointer[turn]
	over     atomic.Bool
	done     chan struct{}

	// mu guards what a goroutine left behind must no longer touch.
	mu      sync.Mutex
	replies []reply[T]
	// answered is how many policies have a reply.
	answered int
}

// inTurn asks all policies and returns a reply for each. It takes at most as
// long as the context has, and one evaluation's limit more.
func inTurn[T any](ctx context.Context, limit time.Duration, policies []*policy,
	ask func(context.Context, *policy, topdown.Cancel) (T, error),
) []reply[T] {
	if len(policies) == 0 {
		return nil
	}
	r := &round[T]{
		policies: policies, ask: ask, limit: limit,
		done: make(chan struct{}), replies: make([]reply[T], len(policies)),
	}
	go r.work(ctx, 0)
	r.watch(ctx)
	return r.replies
}

// work asks the policies from one place on, until the round is over or the
// goroutine is left behind.
func (r *round[T]) work(ctx context.Context, from int) {
	for place := from; place < len(r.policies); place++ {
		t := &turn{place: place, began: clock.MachineNow()}
		r.current.Store(t)
		given := r.take(ctx, t)
		r.mu.Lock()
		behind := r.answered != place
		if !behind {
			r.replies[place] = given
			r.answered++
		}
		r.mu.Unlock()
		if behind {
			r.policies[place].stuck.Add(-1)
			return
		}
	}
	close(r.done)
}

func (r *round[T]) take(ctx context.Context, t *turn) (given reply[T]) {
	p := r.policies[t.place]
	// In this order: whoever ends the round sets over before it ends the turn.
	switch {
	case r.over.Load():
		given.err = ErrRequestDeadline
	case p.stuck.Load() > 0:
		given.err = ErrBusy
	default:
		given.value, given.err = r.ask(ctx, p, t)
	}
	given.took = clock.MachineNow().Sub(t.began)
	if errors.Is(given.err, ErrDeadline) && r.over.Load() {
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
func (r *round[T]) watch(ctx context.Context) {
	ticker := time.NewTicker(max(r.limit/ticksPerLimit, time.Millisecond)) //nolint:forbidigo // machine time: how long an evaluation takes
	defer ticker.Stop()
	var seen *turn
	ticks := 0
	ended := ctx.Done()
	for {
		select {
		case <-r.done:
			return
		case <-ended:
			ended = nil
			r.over.Store(true)
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
		case ticks >= 2*ticksPerLimit && r.abandon(t.place):
			go r.work(ctx, t.place+1)
		}
	}
}

// abandon gives a policy its reply in place of the goroutine that is stuck in it.
// It reports false where that one came back just now.
func (r *round[T]) abandon(place int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered != place {
		return false
	}
	r.policies[place].stuck.Add(1)
	r.replies[place] = reply[T]{err: ErrDeadline, took: clock.MachineNow().Sub(r.current.Load().began)}
	r.answered++
	return true
}

// abandonAll gives every policy that has none yet its reply, and leaves the
// goroutine behind.
func (r *round[T]) abandonAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for place := r.answered; place < len(r.policies); place++ {
		r.replies[place] = reply[T]{err: ErrRequestDeadline}
	}
	if r.answered < len(r.policies) {
		r.policies[r.answered].stuck.Add(1)
		r.answered = -1
	}
}
