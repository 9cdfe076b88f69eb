// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// apply cuts GPUs, and tells how all are afterwards, seen by what the GPUNode says.
func (e *Engine) apply(ctx context.Context, cut, spec []v1alpha1.DesiredGPU, inUse InUse) Outcome {
	results := make([]Result, len(cut))
	gpus, err := e.gpus()
	var group sync.WaitGroup
	places := make(chan struct{}, e.parallel())
	for i, want := range cut {
		at := slices.IndexFunc(gpus, func(gpu nvml.GPU) bool { return gpu.UUID == string(want.UUID) })
		switch {
		case err != nil:
			results[i] = unlisted(want, err)
		case at < 0:
			results[i] = Result{
				GPU: string(want.UUID), State: Lost, Reason: v1alpha1.ConditionGPULost,
				Message: "the driver knows no such GPU on this node: it fell off the bus, or was taken out",
			}
		default:
			places <- struct{}{}
			group.Go(func() {
				defer func() { <-places }()
				results[i] = e.cut(ctx, gpus[at], want, inUse)
			})
		}
	}
	group.Wait()
	return e.outcome(ctx, results, spec, inUse)
}

// unlisted is the result where the driver does not even say which GPUs there are.
func unlisted(want v1alpha1.DesiredGPU, err error) Result {
	r := Result{GPU: string(want.UUID), State: Unhealthy, Reason: v1alpha1.ReasonDriverError, Message: err.Error()}
	if errors.Is(err, nvml.ErrNoPermission) {
		r.State, r.Reason = Denied, v1alpha1.ConditionNoPermission
	}
	return r
}

// gpus are the node's GPUs. Where the driver went away and came back one has to
// connect to it again first.
func (e *Engine) gpus() ([]nvml.GPU, error) {
	found, err := ask(e, "", e.Library.GPUs)
	if errors.Is(err, nvml.ErrUninitialized) {
		if err = e.do("", e.Library.Init); err == nil {
			found, err = ask(e, "", e.Library.GPUs)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the GPUs: %w", err)
	}
	return found, nil
}

// outcome sums up what became of the GPUs.
func (e *Engine) outcome(ctx context.Context, results []Result, spec []v1alpha1.DesiredGPU, inUse InUse) Outcome {
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
		if err := e.Journal.Trust(); err != nil {
			e.Log.Error(err, "the journal's doubt cannot be ended")
		}
	}
	o.Doubt = e.Journal.Doubt()
	o.Conditions = conditions(results, o.Observed, o.Doubt)
	return o
}
