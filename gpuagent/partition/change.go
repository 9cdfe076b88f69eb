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
	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// change is what is done on one GPU between two moments at which nothing is under way
// on it: look, decide, carry out, look again, until nothing is left to do, or it is
// given up and undone. A change that a crash cut off is taken up where it was.
type change struct {
	e     *Engine
	gpu   nvml.GPU
	want  target
	inUse InUse
	log   logr.Logger

	// before is the layout to which it is undone; known after the first look.
	before *journal.Layout
	// own is the register as of the last look and the calls since.
	own []journal.Instance
	// announced tells that the journal has a call of this change, called that one was
	// made, be it refused: what a driver that refuses has done only another look tells.
	// changed tells that one had, or may have had, an effect.
	announced, called, changed bool

	tries tries
	// seen is the GPU as of the last look, in a form that can be compared.
	seen string
	bed  *bed
}

// cut does all that there is to do on one GPU.
func (e *Engine) cut(ctx context.Context, gpu nvml.GPU, want v1alpha1.DesiredGPU, inUse InUse) Result {
	bed := e.ward.bed(gpu.UUID)
	bed.change.Lock()
	defer bed.change.Unlock()
	board, _ := mig.BoardOf(gpu.PCIDevice)
	c := &change{e: e, gpu: gpu, want: resolve(board, want), inUse: inUse, bed: bed, log: e.Log.WithValues("gpu", gpu.UUID)}
	if begun, ok := e.Journal.Change(gpu.UUID); ok {
		c.before, c.announced, c.called, c.changed = &begun.Before, true, true, true
	}
	if why := e.sick(gpu.UUID); why != "" && gpu.Err == nil {
		return c.result(refuse(Unhealthy, v1alpha1.ReasonDriverError, "%s", why))
	}
	return c.finish(ctx, c.converge(ctx))
}

// maxLooks bounds how often one looks and decides anew: more than any change needs,
// with all its attempts.
const maxLooks = 32

// converge carries out what is decided until nothing is left to do.
func (c *change) converge(ctx context.Context) verdict {
	for range maxLooks {
		p, err := c.look(ctx)
		if err == nil {
			v := decide(p, &c.want)
			if len(v.steps) == 0 {
				return v
			}
			if again, known := c.failedBefore(); known {
				return again
			}
			_, err = c.carryOut(ctx, p, v.steps)
		}
		if v, over := c.judge(ctx, err); over {
			return v
		}
	}
	return refuse(RolledBack, v1alpha1.ReasonDriverError, "each call went well and the GPU is still not cut as asked; somebody else may be cutting it")
}

// look is the GPU afresh, and which of its instances are Sluice's own.
func (c *change) look(ctx context.Context) (*picture, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p, err := c.e.look(ctx, c.gpu, c.inUse)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, err
	}
	var begun *journal.Change
	if known, ok := c.e.Journal.Change(c.gpu.UUID); ok {
		begun = &known
	}
	known := c.e.Journal.Instances(c.gpu.UUID)
	if !p.capable && (begun != nil || len(known) > 0) {
		return nil, fmt.Errorf("%w: the driver says that it has no MIG mode, and it had instances", errUnclear)
	}
	claim(p, known, begun, &c.want)
	c.own, c.seen = p.register(known), p.seen()
	if c.before == nil {
		layout := p.layout()
		c.before = &layout
	}
	return p, nil
}

// finish ends the change, undoing it where it did not succeed. It stays open in the
// journal where one cannot write now and has to go on later.
func (c *change) finish(ctx context.Context, v verdict) Result {
	switch {
	case !v.state.final():
		if c.announced && !c.called {
			// The memory is right even where the disk is not.
			_ = c.e.Journal.End(c.gpu.UUID, c.own)
		}
		return c.result(v)
	case v.state == Applied || !c.called && !c.halfMade():
		return c.end(c.result(v))
	default:
		return c.undo(ctx, v)
	}
}

// halfMade tells whether an instance is left of which a crash or a refusal has kept the
// device from being made, or the rest from being destroyed.
func (c *change) halfMade() bool {
	return slices.ContainsFunc(c.own, func(own journal.Instance) bool { return own.UUID == "" })
}

// end closes the change in the journal.
func (c *change) end(r Result) Result {
	if err := c.e.Journal.End(c.gpu.UUID, c.own); err != nil {
		r.State, r.Reason = JournalFailed, v1alpha1.ReasonJournalFailed
		r.Message = fmt.Sprintf("what was done is not recorded: %v; %s", err, freeSpace)
	}
	return r
}

func (c *change) result(v verdict) Result {
	return Result{GPU: c.gpu.UUID, State: v.state, Reason: v.reason, Message: v.message, Changed: c.changed}
}
