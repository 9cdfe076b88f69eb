// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/nvml"
)

// Engine cuts the GPUs of one node. Its methods may be called from several goroutines;
// at any moment each GPU is changed by at most one of them. Fields are set before the
// first call and not changed afterwards.
type Engine struct {
	// Library is the driver, initialised.
	Library nvml.Library
	// Journal is where writes to the driver are announced. It is this Engine's alone.
	Journal *journal.Journal
	// Log gets a line for each write to the driver. Default: none.
	Log logr.Logger
	// CallTimeout is for how long the driver may think about one call before its GPU
	// counts as unhealthy; machine time. Default: 30 s.
	CallTimeout time.Duration
	// Parallel is how many GPUs are worked on at once. Default: 4.
	Parallel int
	// Now is machine time. Default: time.Now.
	Now func() time.Time
	// Pause waits between attempts, and returns early where the context ends. Default:
	// machine time.
	Pause func(ctx context.Context, d time.Duration)

	ward ward
}

// Recover is called once, after a start and before the first Apply: it compares the
// journal with the driver, and completes what had been begun when the process ended,
// or undoes it where somebody is in the way. Where the machine was booted since, there
// is nothing to recover: the layout is gone, and Apply makes it again.
func (e *Engine) Recover(ctx context.Context, inUse InUse) Outcome {
	return e.apply(ctx, e.begun(nil), nil, inUse)
}

// Apply cuts the GPUs as desired, those that are not listed left alone, except that
// what was begun on them is ended. It returns when each is cut so, or was found
// impossible; it neither waits for anybody to let go of an instance nor ever takes one
// away from them. It is idempotent: with nothing to do, nothing is written, neither to
// the driver nor to disk.
func (e *Engine) Apply(ctx context.Context, desired []v1alpha1.DesiredGPU, inUse InUse) Outcome {
	return e.apply(ctx, append(desired[:len(desired):len(desired)], e.begun(desired)...), desired, inUse)
}

// begun are the layouts to which changes that were not ended were to lead, of the GPUs
// that are not listed.
func (e *Engine) begun(listed []v1alpha1.DesiredGPU) []v1alpha1.DesiredGPU {
	var open []v1alpha1.DesiredGPU
next:
	for _, gpu := range e.Journal.Open() {
		for i := range listed {
			if string(listed[i].UUID) == gpu {
				continue next
			}
		}
		change, _ := e.Journal.Change(gpu)
		open = append(open, desired(gpu, change.Wanted))
	}
	return open
}

func (e *Engine) now() time.Time {
	if e.Now != nil {
		return e.Now()
	}
	return time.Now()
}

func (e *Engine) callTimeout() time.Duration {
	if e.CallTimeout > 0 {
		return e.CallTimeout
	}
	return 30 * time.Second
}

// pause waits, unless the context ends.
func (e *Engine) pause(ctx context.Context, d time.Duration) {
	if e.Pause != nil {
		e.Pause(ctx, d)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// parallel is how many GPUs are worked on at once.
func (e *Engine) parallel() int {
	if e.Parallel > 0 {
		return e.Parallel
	}
	return 4
}
