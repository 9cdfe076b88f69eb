// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// look reads one GPU afresh, and last of all who has what of it. The error is of the
// driver.
func (e *Engine) look(ctx context.Context, gpu nvml.GPU, inUse InUse) (*picture, error) {
	if gpu.Err != nil {
		return nil, gpu.Err
	}
	p := &picture{gpu: gpu}
	p.board, _ = mig.BoardOf(gpu.PCIDevice)
	if err := e.readMode(p); err != nil {
		return nil, unread("MIG mode", err)
	}
	if p.capable && p.current == nvml.Enabled {
		if err := e.readInstances(p); err != nil {
			return nil, unread("instances", err)
		}
	}
	return p, e.readUse(ctx, p, inUse)
}

// unread keeps the driver's error where it says what is to be done. Others only say that
// the GPU could not be read: of an instance that is gone in the middle of a look it must
// not be believed that it was the one to be destroyed.
func unread(what string, err error) error {
	switch kindOf(err) {
	case lost, hung, denied:
		return fmt.Errorf("read the %s: %w", what, err)
	}
	if errors.Is(err, nvml.ErrUninitialized) {
		return fmt.Errorf("read the %s: %w", what, err)
	}
	return fmt.Errorf("%w: read the %s: %v", errUnclear, what, err) //nolint:errorlint // see above
}

func (e *Engine) readMode(p *picture) error {
	type modes struct{ current, pending nvml.Mode }
	m, err := ask(e, p.gpu.UUID, func() (m modes, err error) {
		m.current, m.pending, err = e.Library.MIGMode(p.gpu.UUID)
		return m, err
	})
	if errors.Is(err, nvml.ErrNotSupported) {
		return nil
	}
	p.capable, p.current, p.pending = err == nil, m.current, m.pending
	return err
}

func (e *Engine) readInstances(p *picture) error {
	gpu := p.gpu.UUID
	var err error
	if p.profiles, err = ask(e, gpu, func() ([]nvml.Profile, error) { return e.Library.Profiles(gpu) }); err != nil {
		return err
	}
	found, err := ask(e, gpu, func() ([]nvml.Instance, error) { return e.Library.Instances(gpu) })
	if err != nil {
		return err
	}
	for _, it := range found {
		computes, err := ask(e, gpu, func() ([]nvml.ComputeInstance, error) { return e.Library.ComputeInstances(gpu, it.ID) })
		if err != nil {
			return err
		}
		p.instances = append(p.instances, instance{
			id: it.ID, driver: it.Profile, profile: p.profile(it.Profile), start: it.Placement.Start, size: it.Placement.Size, computes: computes,
		})
	}
	slices.SortFunc(p.instances, func(a, b instance) int { return cmp.Compare(a.start, b.start) })
	return nil
}

// readUse notes who has what. Where that cannot be read, or makes no sense, it notes
// that all of it may be in use. The error is of a driver that does not answer at all.
func (e *Engine) readUse(ctx context.Context, p *picture, inUse InUse) error {
	gpu := p.gpu.UUID
	processes, err := ask(e, gpu, func() ([]nvml.Process, error) { return e.Library.Processes(gpu) })
	if k := kindOf(err); k == lost || k == hung {
		return unread("processes", err)
	}
	if err != nil {
		p.unknownProcesses = fmt.Errorf("read the processes: %w", err)
	}
	for _, process := range processes {
		p.note(process)
	}
	p.unknown = p.unknownProcesses
	if inUse == nil {
		p.unknown = errors.Join(p.unknown, errors.New("nobody was named who knows the pods' devices"))
		return nil
	}
	// Who is asked may ask others that hang; that is no answer, so all is in use.
	limit, cancel := context.WithTimeout(ctx, e.callTimeout())
	defer cancel()
	holders, err := ask(e, "the use of "+gpu, func() (map[string]Holder, error) { return inUse(limit, gpu) })
	if err != nil {
		p.unknown = errors.Join(p.unknown, err)
	}
	for device, holder := range holders {
		// A device that is shared in time has replicas: MIG-...::2.
		device, _, _ = strings.Cut(device, "::")
		if device == gpu {
			p.whole = &holder
		}
		for i := range p.instances {
			if p.instances[i].has(device) {
				p.instances[i].holder = &holder
			}
		}
	}
	return nil
}

// note notes a process where it is. One on an instance that was not there a moment ago
// says that the picture is not of one moment.
func (p *picture) note(process nvml.Process) {
	holder := &Holder{PID: process.PID, Why: "a process is on it"}
	if process.Instance == nvml.NoInstance {
		p.whole = holder
		return
	}
	for i := range p.instances {
		if p.instances[i].id == process.Instance {
			p.instances[i].holder = holder
			return
		}
	}
	p.unknownProcesses = fmt.Errorf("process %d is on instance %d, which came or went just now", process.PID, process.Instance)
}

// has tells whether the device is one of the instance's.
func (i *instance) has(device string) bool {
	for _, c := range i.computes {
		if c.UUID == device {
			return true
		}
	}
	return false
}
