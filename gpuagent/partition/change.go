// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// gpuChange is one change of one GPU: it observes, decides and executes, and repeats that until
// nothing is left to do or the change has to be rolled back. It continues a change that a crash
// interrupted.
type gpuChange struct {
	engine  *Engine
	gpu     nvml.GPU
	want    v1alpha1.DesiredGPU
	desired desiredLayout
	inUse   InUse
	log     logr.Logger

	// before is the layout to roll back to; nil before the first observation.
	before *Layout
	// owned is the register as of the last observation and the calls since.
	owned []OwnedInstance
	// journaled reports whether the journal has a call of this change; driverCalled whether one was
	// made, even if refused. changed reports whether a call had, or may have had, an effect.
	journaled, driverCalled, changed bool

	retries retryCounts
	// reloaded reports whether DCGM was reloaded for this change.
	reloaded bool
	// fingerprint describes the GPU at the last observation, for comparison.
	fingerprint string
	state       *gpuState
}

// repartition brings one GPU to its desired layout.
func (e *Engine) repartition(ctx context.Context, gpu nvml.GPU, want v1alpha1.DesiredGPU, inUse InUse) Result {
	state := e.states.get(gpu.UUID)
	state.change.Lock()
	defer state.change.Unlock()
	defer e.readings.drop(gpu.UUID)
	c := &gpuChange{
		engine: e, gpu: gpu, want: want, inUse: inUse, state: state,
		log: e.Log.WithValues("gpu", gpu.UUID),
	}
	if pending, ok := e.Journal.PendingChange(gpu.UUID); ok {
		c.before, c.journaled, c.driverCalled, c.changed = &pending.Before, true, true, true
	}
	if why := e.unhealthyReason(gpu.UUID); why != "" && gpu.Err == nil {
		return c.result(refuse(Unhealthy, v1alpha1.ReasonDriverError, "%s", why))
	}
	return c.finish(ctx, c.converge(ctx))
}

// maxIterations bounds the iterations. No change needs as many, with all its retries.
const maxIterations = 32

// converge executes decisions until nothing is left to do.
func (c *gpuChange) converge(ctx context.Context) decision {
	for range maxIterations {
		p, err := c.observe(ctx)
		if err == nil {
			v := decide(p, &c.desired)
			if len(v.steps) == 0 {
				return c.nameHolders(ctx, v)
			}
			if again, known := c.recentRollback(); known {
				return again
			}
			_, err = c.executeSteps(ctx, p, v.steps)
		}
		if v, over := c.handleError(ctx, err); over {
			return v
		}
	}
	return refuse(RolledBack, v1alpha1.ReasonDriverError,
		"all calls succeeded, but the GPU does not have the desired layout; another program may be partitioning it")
}

// observe reads the GPU and marks Sluice's own instances.
func (c *gpuChange) observe(ctx context.Context) (*observedGPU, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p, err := c.engine.readGPU(ctx, c.gpu, c.inUse, nil)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	c.desired.resolve(p.model, c.want)
	var pending *PendingChange
	if known, ok := c.engine.Journal.PendingChange(c.gpu.UUID); ok {
		pending = &known
	}
	known := c.engine.Journal.Instances(c.gpu.UUID)
	if !p.migCapable && (pending != nil || len(known) > 0) {
		return nil, fmt.Errorf("%w: the driver reports no MIG mode, but the GPU had instances", errUnreadable)
	}
	markOwned(p, known, pending, &c.desired)
	c.owned, c.fingerprint = p.ownedInstances(known), p.fingerprint()
	if c.before == nil {
		layout := p.layout()
		c.before = &layout
	}
	return p, nil
}

// finish ends the change and rolls it back if it failed. If nothing can be written now, the change
// stays open in the journal.
func (c *gpuChange) finish(ctx context.Context, v decision) Result {
	if v.state == Applied {
		c.state.waitedFor = ""
	}
	switch {
	case !v.state.isFinal():
		if c.journaled && !c.driverCalled {
			// The journal in memory is correct even if the disk fails.
			_ = c.engine.Journal.RecordEnd(c.gpu.UUID, c.owned)
		}
		return c.result(v)
	case v.state == Applied || !c.driverCalled && !c.hasIncompleteInstance():
		return c.closeJournal(c.result(v))
	default:
		return c.rollback(ctx, v)
	}
}

// hasIncompleteInstance reports whether an instance without a device is left by a crash or a
// refused call.
func (c *gpuChange) hasIncompleteInstance() bool {
	return slices.ContainsFunc(c.owned, func(own OwnedInstance) bool { return own.UUID == "" })
}

// closeJournal records the end of the change.
func (c *gpuChange) closeJournal(r Result) Result {
	if err := c.engine.Journal.RecordEnd(c.gpu.UUID, c.owned); err != nil {
		r.State, r.Reason = JournalFailed, v1alpha1.ReasonJournalFailed
		r.Message = fmt.Sprintf("the change was made, but not recorded: %v; %s", err, freeDiskAdvice)
	}
	return r
}

func (c *gpuChange) result(v decision) Result {
	return Result{GPU: c.gpu.UUID, State: v.state, Reason: v.reason, Message: v.message, Changed: c.changed}
}
