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

// Engine partitions the GPUs of one node. Its methods may be called from several goroutines; at
// most one of them changes a GPU at a time. Set the fields before the first call.
type Engine struct {
	// Library is the initialized driver.
	Library nvml.Library
	// Journal records the writes to the driver. No other Engine uses it.
	Journal *Journal
	// Log receives a line for each write to the driver. Default: none.
	Log logr.Logger
	// CallTimeout is the machine time that a driver call may take before its GPU counts as
	// unhealthy. Default: 30 s.
	CallTimeout time.Duration
	// Concurrency is the number of GPUs to work on at once. Default: 4.
	Concurrency int
	// Now returns machine time. Default: time.Now.
	Now func() time.Time
	// Sleep waits between attempts and returns early if the context ends. Default: machine time.
	Sleep func(ctx context.Context, d time.Duration)

	// ReloadMonitoring makes DCGM on the node close its handles of GPUs. It is called at most once for a
	// change that the driver refuses, since the GPU is in use. Default: none.
	ReloadMonitoring func()
	// OpenBy describes the processes that have a GPU open, for messages. Default: none.
	OpenBy func(ctx context.Context, gpu string) string

	states gpuStates
	// readings are the last readings of Observe by GPU.
	readings readings
}

// SetDriverLoad is [Journal.SetDriverLoad]. After a reload it also forgets what it read of the GPUs, which of
// them are unhealthy, and which changes failed.
func (e *Engine) SetDriverLoad(load string) (reloaded bool, err error) {
	if reloaded, err = e.Journal.SetDriverLoad(load); reloaded {
		e.readings.dropAll()
		e.states.forget()
	}
	return reloaded, err
}

// Recover compares the journal with the driver, and completes the changes of a former process, or
// undoes them if an instance is in use. Call it once after a start, before the first Apply. After a
// reboot it has nothing to do: the layout is gone, and Apply creates it again.
func (e *Engine) Recover(ctx context.Context, inUse InUse) Outcome {
	return e.apply(ctx, e.unfinishedLayouts(nil), nil, inUse)
}

// Apply partitions the GPUs as desired. On other GPUs it only ends unfinished changes. It returns
// when each GPU is partitioned or was found impossible; it never waits for a holder to release an
// instance. It is idempotent: with nothing to change it writes nothing to the driver or to disk.
func (e *Engine) Apply(ctx context.Context, desired []v1alpha1.DesiredGPU, inUse InUse) Outcome {
	return e.apply(ctx, append(desired[:len(desired):len(desired)], e.unfinishedLayouts(desired)...), desired, inUse)
}

// unfinishedLayouts returns the desired layouts of unfinished changes on GPUs that are not listed.
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

// sleep waits for d or until the context ends.
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

func (e *Engine) concurrency() int {
	if e.Concurrency > 0 {
		return e.Concurrency
	}
	return 4
}

// apply partitions GPUs and returns the state of all GPUs afterwards, as seen from the GPUNode's
// spec.
func (e *Engine) apply(ctx context.Context, targets, spec []v1alpha1.DesiredGPU, inUse InUse) Outcome {
	results := make([]Result, len(targets))
	gpus, err := e.listGPUs()
	var group sync.WaitGroup
	places := make(chan struct{}, e.concurrency())
	for i, want := range targets {
		at := slices.IndexFunc(gpus, func(gpu nvml.GPU) bool { return gpu.UUID == string(want.UUID) })
		switch {
		case err != nil:
			results[i] = listFailedResult(want, err)
		case at < 0:
			results[i] = Result{
				GPU: string(want.UUID), State: Lost, Reason: v1alpha1.ConditionGPULost,
				Message: "the driver lists no such GPU on this node: it fell off the bus or was removed",
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

// listFailedResult returns the result for a driver that cannot list its GPUs.
func listFailedResult(want v1alpha1.DesiredGPU, err error) Result {
	r := Result{GPU: string(want.UUID), State: Unhealthy, Reason: v1alpha1.ReasonDriverError, Message: err.Error()}
	if errors.Is(err, nvml.ErrNoPermission) {
		r.State, r.Reason = Denied, v1alpha1.ConditionNoPermission
	}
	return r
}

// listGPUs returns the node's GPUs. It connects again to a driver that was reloaded.
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

// summarize returns the outcome of the results.
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
		// No instance with an unknown owner is left.
		if err := e.Journal.RestoreTrust(); err != nil {
			e.Log.Error(err, "Failed to mark journal as usable")
		}
	}
	o.UntrustedReason = e.Journal.UntrustedReason()
	o.Conditions = conditions(results, o.Observed, o.UntrustedReason)
	return o
}
