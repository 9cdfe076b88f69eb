// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice.dev/gpuagent/nvml"
)

// executeSteps executes the steps in order and returns the one that failed.
func (c *gpuChange) executeSteps(ctx context.Context, p *observedGPU, steps []step) (*step, error) {
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.executeStep(ctx, p, steps[i]); err != nil {
			return &steps[i], err
		}
	}
	return nil, nil
}

func (c *gpuChange) executeStep(ctx context.Context, p *observedGPU, s step) error {
	switch s.kind {
	case stepDestroy:
		return c.destroyInstance(ctx, s.instance)
	case stepComplete:
		return c.createComputeInstance(s.instance.ownedInstance())
	case stepCreate:
		return c.createInstance(p, s.slot)
	case stepSetMode:
		return c.setMIGMode(ctx, s.mode, p.current)
	default:
		return c.resetGPU(ctx)
	}
}

// journaledCall records a call in the journal, runs check, and makes the call immediately
// afterwards.
func (c *gpuChange) journaledCall(call Call, check, do func() error) error {
	gpu := c.gpu.UUID
	c.journaled = true
	if err := c.engine.Journal.RecordCall(gpu, PendingChange{Before: *c.before, Desired: c.desired.layout(), Next: call},
		c.owned); err != nil {
		return fmt.Errorf("%w: %w", errJournalWrite, err)
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	err := c.engine.runDriverCall(gpu, do)
	c.driverCalled, c.changed = true, c.changed || err == nil || classify(err).mayHaveTakenEffect()
	c.log.Info(string(call.Operation), "instance", call.Instance.String(), "id", call.Instance.ID, "uuid", call.Instance.UUID, "error", err)
	if err != nil {
		return fmt.Errorf("%s %s: %w", call.Operation, call.Instance.Placement, err)
	}
	return nil
}

// destroyInstance destroys an instance with its compute instance. It reads the holders again before
// each of the two calls.
func (c *gpuChange) destroyInstance(ctx context.Context, it instance) error {
	gpu := c.gpu.UUID
	nobodyHasIt := func() error { return c.checkInstanceIdle(ctx, &it) }
	for _, compute := range it.computes {
		call := Call{Operation: OpDestroyComputeInstance, Instance: it.ownedInstance(), Compute: compute.ID}
		err := c.journaledCall(call, nobodyHasIt, func() error { return c.engine.Library.DestroyComputeInstance(gpu, it.id, compute.ID) })
		if err = staleIfMissing(err); err != nil {
			return err
		}
	}
	it.computes = nil
	c.register(it.ownedInstance())
	err := c.journaledCall(Call{Operation: OpDestroyInstance, Instance: it.ownedInstance()}, nobodyHasIt,
		func() error { return c.engine.Library.DestroyInstance(gpu, it.id) })
	if err = staleIfMissing(err); err != nil {
		return err
	}
	c.owned = slices.DeleteFunc(c.owned, func(own OwnedInstance) bool { return own.ID == it.id })
	return nil
}

// staleIfMissing converts the error of a destroying call. If the driver does not find the target or
// the GPU is not in MIG mode, the observation is stale and the GPU is observed again.
func staleIfMissing(err error) error {
	if errors.Is(err, nvml.ErrNotFound) || errors.Is(err, nvml.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// checkInstanceIdle returns nil if the instance is still the same and unused.
func (c *gpuChange) checkInstanceIdle(ctx context.Context, it *instance) error {
	p, err := c.engine.readGPU(ctx, c.gpu, c.inUse, nil)
	if err != nil {
		return err
	}
	for i := range p.instances {
		now := &p.instances[i]
		if !now.isSame(it) {
			continue
		}
		if holder := p.holderOf(now); holder != "" {
			return fmt.Errorf("%s: %w: %s", it.displayName(), errInUse, holder)
		}
		return nil
	}
	return fmt.Errorf("%s: %w", it.displayName(), errStale)
}

// createInstance creates an instance with its compute instance.
func (c *gpuChange) createInstance(p *observedGPU, s slot) error {
	gpu := c.gpu.UUID
	profile, _ := p.driverProfile(s.profile)
	places, err := callDriver(c.engine, gpu, func() ([]nvml.Placement, error) { return c.engine.Library.Placements(gpu, profile.ID) })
	if err != nil {
		return fmt.Errorf("read the placements of %s: %w", s.profile.Name, err)
	}
	at := slices.IndexFunc(places, func(place nvml.Placement) bool { return place.Start == s.start })
	if at < 0 {
		return fmt.Errorf("the driver allows %s only at %v: %w", s.placement(), places, nvml.ErrInvalidArgument)
	}
	var made nvml.Instance
	entry := OwnedInstance{Placement: s.placement()}
	err = c.journaledCall(Call{Operation: OpCreateInstance, Instance: entry}, nil, func() (err error) {
		made, err = c.engine.Library.CreateInstance(gpu, profile.ID, places[at])
		return err
	})
	if err != nil {
		return err
	}
	entry.ID = made.ID
	c.register(entry)
	return c.createComputeInstance(entry)
}

// createComputeInstance creates the compute instance of an instance.
func (c *gpuChange) createComputeInstance(entry OwnedInstance) error {
	var made nvml.ComputeInstance
	err := c.journaledCall(Call{Operation: OpCreateComputeInstance, Instance: entry}, nil, func() (err error) {
		made, err = c.engine.Library.CreateComputeInstance(c.gpu.UUID, entry.ID)
		return err
	})
	if err != nil {
		return err
	}
	entry.UUID = made.UUID
	c.register(entry)
	return nil
}

// setMIGMode sets another MIG mode on an unused GPU, or the current one, to cancel a pending mode.
func (c *gpuChange) setMIGMode(ctx context.Context, mode nvml.Mode, present nvml.Mode) error {
	check := func() error { return c.checkGPUIdle(ctx) }
	if mode == present {
		check = nil
	}
	err := c.journaledCall(Call{Operation: OpSetMIGMode, MIG: bool(mode)}, check, func() error {
		activation, err := c.engine.Library.SetMIGMode(c.gpu.UUID, mode)
		switch {
		case err != nil:
			return err
		case errors.Is(activation, nvml.ErrResetRequired):
			return nil // The mode is pending, as the next observation shows.
		default:
			return activation
		}
	})
	c.desired.modeRequested = c.desired.modeRequested || err == nil
	return err
}

// resetGPU resets an unused GPU.
func (c *gpuChange) resetGPU(ctx context.Context) error {
	err := c.journaledCall(Call{Operation: OpReset}, func() error { return c.checkGPUIdle(ctx) }, func() error {
		err := c.engine.Library.Reset(c.gpu.UUID)
		if errors.Is(err, nvml.ErrNotSupported) {
			return fmt.Errorf("it can only be reset with others, or not by the agent: %w", nvml.ErrResetRequired)
		}
		return err
	})
	c.desired.resetDone = c.desired.resetDone || err == nil
	return err
}

// checkGPUIdle returns nil if the GPU is unused and has no instances.
func (c *gpuChange) checkGPUIdle(ctx context.Context) error {
	p, err := c.engine.readGPU(ctx, c.gpu, c.inUse, nil)
	switch {
	case err != nil:
		return err
	case p.anyHolder() != "":
		return fmt.Errorf("%w: %s", errInUse, p.anyHolder())
	case len(p.instances) > 0:
		return fmt.Errorf("%s: %w", p.instances[0].displayName(), errStale)
	default:
		return nil
	}
}

// register adds or updates an instance in the register.
func (c *gpuChange) register(entry OwnedInstance) {
	c.owned = append(slices.DeleteFunc(slices.Clone(c.owned), func(own OwnedInstance) bool { return own.ID == entry.ID }), entry)
}
