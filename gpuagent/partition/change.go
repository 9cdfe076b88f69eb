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
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// gpuChange is what is done on one GPU between two moments at which nothing is under way
// on it: look, decide, carry out, look again, until nothing is left to do, or it is
// given up and undone. A change that a crash cut off is taken up where it was.
type gpuChange struct {
	engine  *Engine
	gpu     nvml.GPU
	desired desiredLayout
	inUse   InUse
	log     logr.Logger

	// before is the layout to which it is undone; known after the first look.
	before *Layout
	// owned is the register as of the last look and the calls since.
	owned []OwnedInstance
	// journaled tells that the journal has a call of this change, called that one was
	// made, be it refused: what a driver that refuses has done only another look tells.
	// changed tells that one had, or may have had, an effect.
	journaled, driverCalled, changed bool

	retries retryCounts
	// fingerprint is the GPU as of the last look, in a form that can be compared.
	fingerprint string
	state       *gpuState
}

// repartition does all that there is to do on one GPU.
func (e *Engine) repartition(ctx context.Context, gpu nvml.GPU, want v1alpha1.DesiredGPU, inUse InUse) Result {
	bed := e.states.get(gpu.UUID)
	bed.change.Lock()
	defer bed.change.Unlock()
	board, _ := mig.ModelByPCIDevice(gpu.PCIDevice)
	c := &gpuChange{engine: e, gpu: gpu, desired: resolveLayout(board, want), inUse: inUse, state: bed, log: e.Log.WithValues("gpu", gpu.UUID)}
	if begun, ok := e.Journal.PendingChange(gpu.UUID); ok {
		c.before, c.journaled, c.driverCalled, c.changed = &begun.Before, true, true, true
	}
	if why := e.unhealthyReason(gpu.UUID); why != "" && gpu.Err == nil {
		return c.result(refuse(Unhealthy, v1alpha1.ReasonDriverError, "%s", why))
	}
	return c.finish(ctx, c.converge(ctx))
}

// maxIterations bounds how often one looks and decides anew: more than any change needs,
// with all its attempts.
const maxIterations = 32

// converge carries out what is decided until nothing is left to do.
func (c *gpuChange) converge(ctx context.Context) decision {
	for range maxIterations {
		p, err := c.observe(ctx)
		if err == nil {
			v := decide(p, &c.desired)
			if len(v.steps) == 0 {
				return v
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
	return refuse(RolledBack, v1alpha1.ReasonDriverError, "each call went well and the GPU is still not cut as asked; somebody else may be cutting it")
}

// observe is the GPU afresh, and which of its instances are Sluice's own.
func (c *gpuChange) observe(ctx context.Context) (*observedGPU, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p, err := c.engine.readGPU(ctx, c.gpu, c.inUse)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	var begun *PendingChange
	if known, ok := c.engine.Journal.PendingChange(c.gpu.UUID); ok {
		begun = &known
	}
	known := c.engine.Journal.Instances(c.gpu.UUID)
	if !p.migCapable && (begun != nil || len(known) > 0) {
		return nil, fmt.Errorf("%w: the driver says that it has no MIG mode, and it had instances", errUnreadable)
	}
	markOwned(p, known, begun, &c.desired)
	c.owned, c.fingerprint = p.ownedInstances(known), p.fingerprint()
	if c.before == nil {
		layout := p.layout()
		c.before = &layout
	}
	return p, nil
}

// finish ends the change, undoing it where it did not succeed. It stays open in the
// journal where one cannot write now and has to go on later.
func (c *gpuChange) finish(ctx context.Context, v decision) Result {
	switch {
	case !v.state.isFinal():
		if c.journaled && !c.driverCalled {
			// The memory is right even where the disk is not.
			_ = c.engine.Journal.RecordEnd(c.gpu.UUID, c.owned)
		}
		return c.result(v)
	case v.state == Applied || !c.driverCalled && !c.hasIncompleteInstance():
		return c.closeJournal(c.result(v))
	default:
		return c.rollback(ctx, v)
	}
}

// hasIncompleteInstance tells whether an instance is left of which a crash or a refusal has kept the
// device from being made, or the rest from being destroyed.
func (c *gpuChange) hasIncompleteInstance() bool {
	return slices.ContainsFunc(c.owned, func(own OwnedInstance) bool { return own.UUID == "" })
}

// closeJournal closes the change in the journal.
func (c *gpuChange) closeJournal(r Result) Result {
	if err := c.engine.Journal.RecordEnd(c.gpu.UUID, c.owned); err != nil {
		r.State, r.Reason = JournalFailed, v1alpha1.ReasonJournalFailed
		r.Message = fmt.Sprintf("what was done is not recorded: %v; %s", err, freeDiskAdvice)
	}
	return r
}

func (c *gpuChange) result(v decision) Result {
	return Result{GPU: c.gpu.UUID, State: v.state, Reason: v.reason, Message: v.message, Changed: c.changed}
}
