// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// Engine cuts the GPUs of one node. Its methods may be called from several goroutines;
// at any moment each GPU is changed by at most one of them. Fields are set before the
// first call and not changed afterwards.
type Engine struct {
	// Library is the driver, initialized.
	Library nvml.Library
	// Journal is where writes to the driver are announced. It is this Engine's alone.
	Journal *Journal
	// Log gets a line for each write to the driver. Default: none.
	Log logr.Logger
	// CallTimeout is for how long the driver may think about one call before its GPU
	// counts as unhealthy; machine time. Default: 30 s.
	CallTimeout time.Duration
	// Concurrency is how many GPUs are worked on at once. Default: 4.
	Concurrency int
	// Now is machine time. Default: time.Now.
	Now func() time.Time
	// Sleep waits between attempts, and returns early where the context ends. Default:
	// machine time.
	Sleep func(ctx context.Context, d time.Duration)

	states gpuStates
}

// Recover is called once, after a start and before the first Apply: it compares the
// journal with the driver, and completes what had been begun when the process ended,
// or undoes it where somebody is in the way. Where the machine was booted since, there
// is nothing to recover: the layout is gone, and Apply makes it again.
func (e *Engine) Recover(ctx context.Context, inUse InUse) Outcome {
	return e.apply(ctx, e.unfinishedLayouts(nil), nil, inUse)
}

// Apply cuts the GPUs as desired, those that are not listed left alone, except that
// what was begun on them is ended. It returns when each is cut so, or was found
// impossible; it neither waits for anybody to let go of an instance nor ever takes one
// away from them. It is idempotent: with nothing to do, nothing is written, neither to
// the driver nor to disk.
func (e *Engine) Apply(ctx context.Context, desired []v1alpha1.DesiredGPU, inUse InUse) Outcome {
	return e.apply(ctx, append(desired[:len(desired):len(desired)], e.unfinishedLayouts(desired)...), desired, inUse)
}

// unfinishedLayouts are the layouts to which changes that were not ended were to lead, of the GPUs
// that are not listed.
func (e *Engine) unfinishedLayouts(listed []v1alpha1.DesiredGPU) []v1alpha1.DesiredGPU {
	var open []v1alpha1.DesiredGPU
next:
	for _, gpu := range e.Journal.PendingGPUs() {
		for i := range listed {
			if string(listed[i].UUID) == gpu {
				continue next
			}
		}
		change, _ := e.Journal.PendingChange(gpu)
		open = append(open, toDesiredGPU(gpu, change.Desired))
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

// sleep waits, unless the context ends.
func (e *Engine) sleep(ctx context.Context, d time.Duration) {
	if e.Sleep != nil {
		e.Sleep(ctx, d)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// concurrency is how many GPUs are worked on at once.
func (e *Engine) concurrency() int {
	if e.Concurrency > 0 {
		return e.Concurrency
	}
	return 4
}

// apply cuts GPUs, and tells how all are afterwards, seen by what the GPUNode says.
func (e *Engine) apply(ctx context.Context, cut, spec []v1alpha1.DesiredGPU, inUse InUse) Outcome {
	results := make([]Result, len(cut))
	gpus, err := e.listGPUs()
	var group sync.WaitGroup
	places := make(chan struct{}, e.concurrency())
	for i, want := range cut {
		at := slices.IndexFunc(gpus, func(gpu nvml.GPU) bool { return gpu.UUID == string(want.UUID) })
		switch {
		case err != nil:
			results[i] = listFailedResult(want, err)
		case at < 0:
			results[i] = Result{
				GPU: string(want.UUID), State: Lost, Reason: v1alpha1.ConditionGPULost,
				Message: "the driver knows no such GPU on this node: it fell off the bus, or was taken out",
			}
		default:
			places <- struct{}{}
			group.Go(func() {
				defer func() { <-places }()
				results[i] = e.repartition(ctx, gpus[at], want, inUse)
			})
		}
	}
	group.Wait()
	return e.summarize(ctx, results, spec, inUse)
}

// listFailedResult is the result where the driver does not even say which GPUs there are.
func listFailedResult(want v1alpha1.DesiredGPU, err error) Result {
	r := Result{GPU: string(want.UUID), State: Unhealthy, Reason: v1alpha1.ReasonDriverError, Message: err.Error()}
	if errors.Is(err, nvml.ErrNoPermission) {
		r.State, r.Reason = Denied, v1alpha1.ConditionNoPermission
	}
	return r
}

// listGPUs are the node's GPUs. Where the driver went away and came back one has to
// connect to it again first.
func (e *Engine) listGPUs() ([]nvml.GPU, error) {
	found, err := callDriver(e, "", e.Library.GPUs)
	if errors.Is(err, nvml.ErrUninitialized) {
		if err = e.runDriverCall("", e.Library.Init); err == nil {
			found, err = callDriver(e, "", e.Library.GPUs)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the GPUs: %w", err)
	}
	return found, nil
}

// summarize sums up what became of the GPUs.
func (e *Engine) summarize(ctx context.Context, results []Result, spec []v1alpha1.DesiredGPU, inUse InUse) Outcome {
	o := Outcome{Results: results, Complete: true}
	for i := range results {
		r := &results[i]
		o.Changed = o.Changed || r.Changed
		o.Complete = o.Complete && r.State != Interrupted
		if after := retryAfter[r.State]; after > 0 && (o.RetryAfter == 0 || after < o.RetryAfter) {
			o.RetryAfter = after
		}
	}
	var foreign bool
	o.Observed, foreign = e.observeAll(ctx, spec, inUse)
	if o.Observed != nil && !foreign {
		// Nothing is left of which one could not say whose it is.
		if err := e.Journal.RestoreTrust(); err != nil {
			e.Log.Error(err, "the journal's doubt cannot be ended")
		}
	}
	o.UntrustedReason = e.Journal.UntrustedReason()
	o.Conditions = conditions(results, o.Observed, o.UntrustedReason)
	return o
}
