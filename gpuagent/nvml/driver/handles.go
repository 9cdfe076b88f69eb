// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"regexp"
	"sync"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// device is a GPU's handle, and what of it never changes while the handle is good.
type device struct {
	gonvml.Device
	uuid string

	mu       sync.Mutex
	profiles []profile
}

// handles keeps the GPUs' handles: finding one by its UUID may take the driver seconds.
type handles struct {
	mu    sync.Mutex
	known map[string]*device
	// epoch counts how often all were forgotten: what was found before is not kept
	// after.
	epoch int
	// places are the UUIDs by index as they were found last, for GPUs that no longer
	// tell theirs.
	places map[int]string
}

// forget throws all handles away: after a reset one may be another GPU's.
func (h *handles) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = nil
	h.epoch++
}

// drop throws one away.
func (h *handles) drop(dev *device) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known[dev.uuid] == dev {
		delete(h.known, dev.uuid)
	}
}

func (h *handles) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch
}

func (h *handles) get(uuid string) *device {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[uuid]
}

// keep remembers a handle that was found in an epoch, and gives back the device to use:
// the one that is known already, where the handle is the same.
func (h *handles) keep(uuid string, handle gonvml.Device, epoch int) *device {
	h.mu.Lock()
	defer h.mu.Unlock()
	if dev := h.known[uuid]; dev != nil && dev.Device == handle {
		return dev
	}
	dev := &device{Device: handle, uuid: uuid}
	if epoch == h.epoch {
		if h.known == nil {
			h.known = map[string]*device{}
		}
		h.known[uuid] = dev
	}
	return dev
}

// gpuUUID keeps MIG devices' UUIDs out, which the library would take for GPUs'.
var gpuUUID = regexp.MustCompile(`^GPU-[0-9A-Za-z-]+$`)

// find is a GPU by its UUID. The gate has been entered.
func (l *library) find(gpu string) (*device, error) {
	if !gpuUUID.MatchString(gpu) {
		return nil, fmt.Errorf("%q is not a GPU's UUID, which begins with GPU-: %w", gpu, nvml.ErrInvalidArgument)
	}
	if dev := l.handles.get(gpu); dev != nil {
		return dev, nil
	}
	epoch := l.handles.now()
	handle, err := ask(l, "nvmlDeviceGetHandleByUUID", func() (gonvml.Device, gonvml.Return) {
		return l.api.DeviceGetHandleByUUID(gpu)
	})
	if err != nil {
		return nil, err
	}
	return l.handles.keep(gpu, handle, epoch), nil
}

// stale are the errors after which a handle is found anew.
var stale = []nvml.Error{
	nvml.ErrGPULost, nvml.ErrResetRequired, nvml.ErrUninitialized,
	nvml.ErrInvalidState, nvml.ErrNotReady, nvml.ErrUnknown,
}

// on does something with a GPU. Errors name it.
func on[T any](l *library, gpu string, do func(*device) (T, error)) (T, error) {
	var none T
	leave, err := l.gate.enter()
	if err != nil {
		return none, err
	}
	defer leave()
	dev, err := l.find(gpu)
	if err != nil {
		return none, fmt.Errorf("GPU %s: %w", gpu, err)
	}
	value, err := do(dev)
	if err != nil {
		for _, code := range stale {
			if errors.Is(err, code) {
				l.handles.drop(dev)
			}
		}
		return none, fmt.Errorf("GPU %s: %w", gpu, err)
	}
	return value, nil
}
