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

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// readGPU reads a GPU and then its holders. It does not read the known compute instances again; a
// decision knows none. The error is the driver's.
func (e *Engine) readGPU(ctx context.Context, gpu nvml.GPU, inUse InUse, known knownDevices) (*observedGPU, error) {
	if gpu.Err != nil {
		return nil, gpu.Err
	}
	p := &observedGPU{gpu: gpu}
	if err := e.readMode(p); err != nil {
		return nil, readError("MIG mode", err)
	}
	if p.migCapable {
		if err := e.readModel(p); err != nil {
			return nil, readError("profiles", err)
		}
	}
	if p.migCapable && p.current == nvml.Enabled {
		if err := e.readInstances(p, known); err != nil {
			return nil, readError("instances", err)
		}
	}
	return p, e.readHolders(ctx, p, inUse)
}

// readError keeps the driver's error if it decides what to do. Other errors only mean that the GPU
// could not be read: an instance that vanished while reading is not proof that the right one was
// destroyed.
func readError(what string, err error) error {
	switch classify(err) {
	case classLost, classHung, classDenied, classUnloaded:
		return fmt.Errorf("read the %s: %w", what, err)
	}
	return fmt.Errorf("%w: read the %s: %v", errUnreadable, what, err) //nolint:errorlint // see above
}

func (e *Engine) readMode(p *observedGPU) error {
	type modes struct{ current, pending nvml.Mode }
	m, err := callDriver(e, p.gpu.UUID, func() (m modes, err error) {
		m.current, m.pending, err = e.Library.MIGMode(p.gpu.UUID)
		return m, err
	})
	if errors.Is(err, nvml.ErrNotSupported) {
		return nil
	}
	p.migCapable, p.current, p.pending = err == nil, m.current, m.pending
	return err
}

// readModel reads the profiles and the model that they describe. While MIG mode is off, a driver need not
// know them.
func (e *Engine) readModel(p *observedGPU) error {
	profiles, err := callDriver(e, p.gpu.UUID, func() ([]nvml.Profile, error) { return e.Library.Profiles(p.gpu.UUID) })
	if err != nil && (p.current == nvml.Enabled || !errors.Is(err, nvml.ErrNotSupported)) {
		return err
	}
	p.profiles, p.model = profiles, p.gpu.Model(profiles)
	return nil
}

func (e *Engine) readInstances(p *observedGPU, known knownDevices) error {
	gpu := p.gpu.UUID
	found, err := callDriver(e, gpu, func() ([]nvml.Instance, error) { return e.Library.Instances(gpu) })
	if err != nil {
		return err
	}
	for _, it := range found {
		computes := known[it]
		if computes == nil {
			computes, err = callDriver(e, gpu, func() ([]nvml.ComputeInstance, error) { return e.Library.ComputeInstances(gpu, it.ID) })
			if err != nil {
				return err
			}
		}
		p.instances = append(p.instances, instance{
			id: it.ID, driverProfile: it.Profile, profile: p.modelProfile(it.Profile), start: it.Placement.Start, size: it.Placement.Size,
			computes: computes,
		})
	}
	slices.SortFunc(p.instances, func(a, b instance) int { return cmp.Compare(a.start, b.start) })
	return nil
}

// readHolders reads the holders. If they are unreadable or contradictory, everything counts as in
// use. The error is that of a driver that does not answer.
func (e *Engine) readHolders(ctx context.Context, p *observedGPU, inUse InUse) error {
	gpu := p.gpu.UUID
	processes, err := callDriver(e, gpu, func() ([]nvml.Process, error) { return e.Library.Processes(gpu) })
	if k := classify(err); k == classLost || k == classHung {
		return readError("processes", err)
	}
	if err != nil {
		p.processesUnknown = fmt.Errorf("read the processes: %w", err)
	}
	p.processes = processes
	for _, process := range processes {
		p.noteProcess(process)
	}
	p.holdersUnknown = p.processesUnknown
	if inUse == nil {
		p.holdersUnknown = errors.Join(p.holdersUnknown, errors.New("the holders of the pods' devices are not configured"))
		return nil
	}
	// InUse may call services that hang. Without an answer everything counts as in use.
	limit, cancel := context.WithTimeout(ctx, e.callTimeout())
	defer cancel()
	holders, err := callDriver(e, "the use of "+gpu, func() (map[string]Holder, error) { return inUse(limit, gpu) })
	if err != nil {
		p.holdersUnknown = errors.Join(p.holdersUnknown, err)
	}
	for device, holder := range holders {
		// A time-shared device has replicas: MIG-...::2.
		device, _, _ = strings.Cut(device, "::")
		if device == gpu {
			p.wholeHolder = &holder
		}
		for i := range p.instances {
			if p.instances[i].hasDevice(device) {
				p.instances[i].holder = &holder
			}
		}
	}
	return nil
}

// noteProcess records a process as the holder of its instance. A process on an unlisted instance
// shows that the instances changed while reading.
func (p *observedGPU) noteProcess(process nvml.Process) {
	holder := &Holder{PID: process.PID, Why: "a process is on it"}
	if process.Instance == nvml.NoInstance {
		p.wholeHolder = holder
		return
	}
	for i := range p.instances {
		if p.instances[i].id == process.Instance {
			p.instances[i].holder = holder
			return
		}
	}
	p.processesUnknown = fmt.Errorf("process %d is on instance %d, which was created or destroyed just now", process.PID, process.Instance)
}

// hasDevice reports whether a device belongs to the instance.
func (i *instance) hasDevice(device string) bool {
	for _, c := range i.computes {
		if c.UUID == device {
			return true
		}
	}
	return false
}

// Holder holds a device.
type Holder struct {
	// Pod is the holding pod; nil if it is no pod or an unknown one.
	Pod *v1alpha1.PodReference
	// PID is the PID of the process on the host; 0 if unknown.
	PID uint32
	// Why explains the holder in a message: "the kubelet assigned it to the pod".
	Why string
}

// String returns the holder's name in messages.
func (h Holder) String() string {
	switch {
	case h.Pod != nil && h.PID != 0:
		return fmt.Sprintf("pod %s/%s (process %d)", h.Pod.Namespace, h.Pod.Name, h.PID)
	case h.Pod != nil:
		return fmt.Sprintf("pod %s/%s", h.Pod.Namespace, h.Pod.Name)
	case h.PID != 0:
		return fmt.Sprintf("process %d", h.PID)
	case h.Why != "":
		return h.Why
	default:
		return "an unknown holder"
	}
}

// InUse returns the holders of a GPU's devices: by the UUID of their MIG device, or by the GPU's
// own UUID if they hold the whole GPU. After an error everything counts as in use.
//
// The engine calls it immediately before it destroys an instance, sets a mode or resets a GPU. So
// it must not answer from a cache, and should take milliseconds. It returns what the kubelet and
// the API server know: pods that hold a device, and pods bound to the node that still wait for one.
// Only the kubelet decides which device such a pod gets, so the pod holds all unassigned devices of
// its profile. The engine itself reads the processes on the GPU from the driver.
//
// Several GPUs may call it at once. If it takes longer than CallTimeout, everything counts as in
// use.
type InUse func(ctx context.Context, gpu string) (map[string]Holder, error)
