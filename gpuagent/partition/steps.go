// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/nvml"
)

// carryOut carries out the steps in their order and says at which it failed.
func (c *change) carryOut(ctx context.Context, p *picture, steps []step) (*step, error) {
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.carryOutOne(ctx, p, steps[i]); err != nil {
			return &steps[i], err
		}
	}
	return nil, nil
}

func (c *change) carryOutOne(ctx context.Context, p *picture, s step) error {
	switch s.act {
	case destroy:
		return c.destroy(ctx, s.instance)
	case complete:
		return c.complete(s.instance.entry())
	case create:
		return c.create(p, s.slot)
	case setMode:
		return c.setMode(ctx, s.mode, p.current)
	default:
		return c.reset(ctx)
	}
}

// write announces one call in the journal, lets check say whether it may be made after
// all, and makes it. Nothing lies between check and the call.
func (c *change) write(call journal.Call, check, do func() error) error {
	gpu := c.gpu.UUID
	c.announced = true
	if err := c.e.Journal.Begin(gpu, journal.Change{Before: *c.before, Wanted: c.want.layout(), Next: call}, c.own); err != nil {
		return fmt.Errorf("%w: %w", errJournal, err)
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	err := c.e.do(gpu, do)
	c.called, c.changed = true, c.changed || err == nil || kindOf(err).unclear()
	c.log.Info(string(call.Act), "instance", call.Instance.String(), "id", call.Instance.ID, "uuid", call.Instance.UUID, "error", err)
	if err != nil {
		return fmt.Errorf("%s %s: %w", call.Act, call.Instance.Placement, err)
	}
	return nil
}

// destroy takes an instance away with its compute instance. Before each of the two
// calls everybody is asked again who has it.
func (c *change) destroy(ctx context.Context, it instance) error {
	gpu := c.gpu.UUID
	nobodyHasIt := func() error { return c.free(ctx, &it) }
	for _, compute := range it.computes {
		call := journal.Call{Act: journal.DestroyCompute, Instance: it.entry(), Compute: compute.ID}
		err := c.write(call, nobodyHasIt, func() error { return c.e.Library.DestroyComputeInstance(gpu, it.id, compute.ID) })
		if err = gone(err); err != nil {
			return err
		}
	}
	it.computes = nil
	c.enter(it.entry())
	err := c.write(journal.Call{Act: journal.DestroyInstance, Instance: it.entry()}, nobodyHasIt,
		func() error { return c.e.Library.DestroyInstance(gpu, it.id) })
	if err = gone(err); err != nil {
		return err
	}
	c.own = slices.DeleteFunc(c.own, func(own journal.Instance) bool { return own.ID == it.id })
	return nil
}

// gone is what an error of destroying something means. Where the driver says that it is
// not there, or that the GPU is not in MIG mode, the picture is old: only another look
// tells what became of it.
func gone(err error) error {
	if errors.Is(err, nvml.ErrNotFound) || errors.Is(err, nvml.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	return err
}

// free is nil where the instance is still the one that it was, and nobody has it.
func (c *change) free(ctx context.Context, it *instance) error {
	p, err := c.e.look(ctx, c.gpu, c.inUse)
	if err != nil {
		return err
	}
	for i := range p.instances {
		now := &p.instances[i]
		if !now.same(it) {
			continue
		}
		if who := p.heldBy(now); who != "" {
			return fmt.Errorf("%s: %w: %s", it.name(), errHeld, who)
		}
		return nil
	}
	return fmt.Errorf("%s: %w", it.name(), errMoved)
}

// create makes an instance with its compute instance.
func (c *change) create(p *picture, s slot) error {
	gpu := c.gpu.UUID
	profile, _ := p.driver(s.profile)
	places, err := ask(c.e, gpu, func() ([]nvml.Placement, error) { return c.e.Library.Placements(gpu, profile.ID) })
	if err != nil {
		return fmt.Errorf("read the placements of %s: %w", s.profile.Name, err)
	}
	at := slices.IndexFunc(places, func(place nvml.Placement) bool { return place.Start == s.start })
	if at < 0 {
		return fmt.Errorf("the driver has no place for %s but %v: %w", s.placement(), places, nvml.ErrInvalidArgument)
	}
	var made nvml.Instance
	entry := journal.Instance{Placement: s.placement()}
	err = c.write(journal.Call{Act: journal.CreateInstance, Instance: entry}, nil, func() (err error) {
		made, err = c.e.Library.CreateInstance(gpu, profile.ID, places[at])
		return err
	})
	if err != nil {
		return err
	}
	entry.ID = made.ID
	c.enter(entry)
	return c.complete(entry)
}

// complete gives an instance its compute instance.
func (c *change) complete(entry journal.Instance) error {
	var made nvml.ComputeInstance
	err := c.write(journal.Call{Act: journal.CreateCompute, Instance: entry}, nil, func() (err error) {
		made, err = c.e.Library.CreateComputeInstance(c.gpu.UUID, entry.ID)
		return err
	})
	if err != nil {
		return err
	}
	entry.UUID = made.UUID
	c.enter(entry)
	return nil
}

// setMode asks for a MIG mode: for another where nobody has the GPU, or again for the
// one that it is in, so that no other is pending.
func (c *change) setMode(ctx context.Context, mode nvml.Mode, present nvml.Mode) error {
	check := func() error { return c.empty(ctx) }
	if mode == present {
		check = nil
	}
	err := c.write(journal.Call{Act: journal.SetMode, MIG: bool(mode)}, check, func() error {
		activation, err := c.e.Library.SetMIGMode(c.gpu.UUID, mode)
		switch {
		case err != nil:
			return err
		case errors.Is(activation, nvml.ErrResetRequired):
			return nil // it is pending, as the next look shows
		default:
			return activation
		}
	})
	c.want.asked = c.want.asked || err == nil
	return err
}

// reset resets the GPU where nobody has it.
func (c *change) reset(ctx context.Context) error {
	err := c.write(journal.Call{Act: journal.Reset}, func() error { return c.empty(ctx) }, func() error {
		err := c.e.Library.Reset(c.gpu.UUID)
		if errors.Is(err, nvml.ErrNotSupported) {
			return fmt.Errorf("it cannot be reset alone, or not from here: %w", nvml.ErrResetRequired)
		}
		return err
	})
	c.want.reset = c.want.reset || err == nil
	return err
}

// empty is nil where nobody has the GPU and it has no instances.
func (c *change) empty(ctx context.Context) error {
	p, err := c.e.look(ctx, c.gpu, c.inUse)
	switch {
	case err != nil:
		return err
	case p.heldByAnyone() != "":
		return fmt.Errorf("%w: %s", errHeld, p.heldByAnyone())
	case len(p.instances) > 0:
		return fmt.Errorf("%s: %w", p.instances[0].name(), errMoved)
	default:
		return nil
	}
}

// enter puts an instance into the register, or what is new about it.
func (c *change) enter(entry journal.Instance) {
	c.own = append(slices.DeleteFunc(slices.Clone(c.own), func(own journal.Instance) bool { return own.ID == entry.ID }), entry)
}
