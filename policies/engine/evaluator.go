// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"
)

// response is the response of one policy.
type response[T any] struct {
	value    T
	err      error
	duration time.Duration
	// cached: the value came from the cache.
	cached bool
}

// evaluateInOrder evaluates policies for an object, one after another, and returns a response for each. OPA cancels each at its
// limit, and all that are left at the end of the context.
func evaluateInOrder[T any](ctx context.Context, limit time.Duration, policies []*policy,
	evaluate func(context.Context, *policy, topdown.Cancel) (T, error),
) []response[T] {
	responses := make([]response[T], len(policies))
	for i, p := range policies {
		responses[i] = evaluateOne(ctx, limit, p, evaluate)
	}
	return responses
}

func evaluateOne[T any](ctx context.Context, limit time.Duration, p *policy,
	evaluate func(context.Context, *policy, topdown.Cancel) (T, error),
) (r response[T]) {
	if ctx.Err() != nil {
		r.err = ErrRequestDeadline
		return r
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := running.begin()
	r.value, r.err = evaluate(limited, p, &deadline{Context: limited, cancel: cancel})
	end := running.end()
	r.duration = end.time.Sub(start.time)
	switch {
	case !errors.Is(r.err, ErrDeadline):
	case ctx.Err() != nil:
		r.err = ErrRequestDeadline
	case !start.worked(end, processorTime()):
		r.err = ErrBusy
	}
	return r
}

// deadline cancels an evaluation when its context ends.
type deadline struct {
	context.Context
	cancel context.CancelFunc
	checks int // used by the goroutine of the evaluation alone
}

var _ topdown.Cancel = (*deadline)(nil)

// Cancel cancels the evaluation.
func (d *deadline) Cancel() { d.cancel() }

// Cancelled reports whether the evaluation is canceled. OPA calls it before each expression, on the goroutine of the evaluation,
// which makes room for others from time to time: Go interrupts it only every ten milliseconds.
func (d *deadline) Cancelled() bool {
	if d.checks++; d.checks%checksPerYield == 0 {
		runtime.Gosched()
	}
	return d.Err() != nil
}

// checksPerYield is the number of expressions, of about a microsecond each, between two yields of an evaluation.
const checksPerYield = 1000
