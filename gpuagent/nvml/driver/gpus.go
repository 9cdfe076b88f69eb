// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

const mebibyte = 1 << 20

// GPUs implements nvml.Library.
func (l *library) GPUs() ([]nvml.GPU, error) {
	leave, err := l.gate.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	epoch := l.handles.currentEpoch()
	count, err := callValue(l, "nvmlDeviceGetCount", l.api.DeviceGetCount)
	if err != nil {
		return nil, err
	}
	gpus := make([]nvml.GPU, count)
	for i := range gpus {
		gpus[i] = l.describeGPU(i, epoch)
	}
	l.handles.fillUUIDs(gpus)
	return gpus, nil
}

// describeGPU returns the GPU at an index. It leaves unknown fields empty and sets Err.
func (l *library) describeGPU(index, epoch int) nvml.GPU {
	gpu := nvml.GPU{Index: index}
	handle, err := callValue(l, "nvmlDeviceGetHandleByIndex", func() (gonvml.Device, gonvml.Return) {
		return l.api.DeviceGetHandleByIndex(index)
	})
	if err != nil {
		gpu.Err = err
		return gpu
	}
	if gpu.UUID, gpu.Err = callValue(l, "nvmlDeviceGetUUID", handle.GetUUID); gpu.Err != nil {
		return gpu
	}
	dev := l.handles.store(gpu.UUID, handle, epoch)
	if known := dev.description.Load(); known != nil && known.Index == index {
		return *known
	}
	if gpu.Name, gpu.Err = callValue(l, "nvmlDeviceGetName", handle.GetName); gpu.Err != nil {
		return gpu
	}
	pci, err := callValue(l, "nvmlDeviceGetPciInfo", handle.GetPciInfo)
	if err != nil {
		gpu.Err = err
		return gpu
	}
	gpu.PCIDevice = pci.PciDeviceId
	memory, err := callValue(l, "nvmlDeviceGetMemoryInfo", handle.GetMemoryInfo)
	if err != nil && !errors.Is(err, nvml.ErrNotSupported) { // a GPU without an identifier of its own
		gpu.Err = err
		return gpu
	}
	gpu.MemoryMiB = int64(memory.Total / mebibyte)
	dev.description.Store(&gpu)
	return gpu
}

// fillUUIDs sets the last known UUIDs of GPUs that report none, unless another GPU has them, and
// records all UUIDs.
func (h *handleCache) fillUUIDs(gpus []nvml.GPU) {
	h.mu.Lock()
	defer h.mu.Unlock()
	places := map[int]string{}
	for _, gpu := range gpus {
		if gpu.UUID != "" {
			places[gpu.Index] = gpu.UUID
		}
	}
	reported := slices.Collect(maps.Values(places))
	for i := range gpus {
		last, known := h.uuidByIndex[gpus[i].Index]
		if gpus[i].UUID == "" && known && !slices.Contains(reported, last) {
			gpus[i].UUID, places[gpus[i].Index] = last, last
		}
	}
	h.uuidByIndex = places
}

// Memory implements nvml.Library. Memory that the driver reserves does not count as used if the
// library reports it separately.
func (l *library) Memory(gpu string) (nvml.Memory, error) {
	return withGPU(l, gpu, func(dev *device) (nvml.Memory, error) {
		if m, err := callValue(l, "nvmlDeviceGetMemoryInfo_v2", dev.GetMemoryInfo_v2); err == nil {
			return nvml.Memory{
				TotalMiB: int64(m.Total / mebibyte), UsedMiB: int64(m.Used / mebibyte), ReservedMiB: int64(m.Reserved / mebibyte),
			}, nil
		}
		m, err := callValue(l, "nvmlDeviceGetMemoryInfo", dev.GetMemoryInfo)
		return nvml.Memory{TotalMiB: int64(m.Total / mebibyte), UsedMiB: int64(m.Used / mebibyte)}, err
	})
}

// Utilization implements nvml.Library.
func (l *library) Utilization(gpu string) (int, error) {
	return withGPU(l, gpu, func(dev *device) (int, error) {
		rates, err := callValue(l, "nvmlDeviceGetUtilizationRates", dev.GetUtilizationRates)
		return int(rates.Gpu), err
	})
}

// device is a GPU's handle with its constant properties.
type device struct {
	gonvml.Device
	uuid string
	// description is the GPU as GPUs reports it; nil before a complete reading.
	description atomic.Pointer[nvml.GPU]

	mu       sync.Mutex
	profiles []driverProfile

	utilization instanceSamples
}

// handleCache caches the GPUs' handles: the driver may take seconds to find one by UUID.
type handleCache struct {
	mu     sync.Mutex
	byUUID map[string]*device
	// epoch counts invalidations. A handle found in an earlier epoch is not stored.
	epoch int
	// uuidByIndex holds the last known UUIDs by index, for GPUs that no longer report theirs.
	uuidByIndex map[int]string
}

// invalidate removes all handles: after a reset one may belong to another GPU.
func (h *handleCache) invalidate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, dev := range h.byUUID {
		dev.utilization.free()
	}
	h.byUUID = nil
	h.epoch++
}

// remove removes one handle.
func (h *handleCache) remove(dev *device) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byUUID[dev.uuid] == dev {
		delete(h.byUUID, dev.uuid)
		dev.utilization.free()
	}
}

func (h *handleCache) currentEpoch() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch
}

func (h *handleCache) get(uuid string) *device {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byUUID[uuid]
}

// store stores a handle found in an epoch, and returns the device to use: the stored one if the
// handle is the same.
func (h *handleCache) store(uuid string, handle gonvml.Device, epoch int) *device {
	h.mu.Lock()
	defer h.mu.Unlock()
	if dev := h.byUUID[uuid]; dev != nil && dev.Device == handle {
		return dev
	}
	dev := &device{Device: handle, uuid: uuid}
	if epoch == h.epoch {
		if h.byUUID == nil {
			h.byUUID = map[string]*device{}
		}
		h.byUUID[uuid] = dev
	}
	return dev
}

// gpuUUIDPattern excludes the UUIDs of MIG devices, which the library would accept as GPUs.
var gpuUUIDPattern = regexp.MustCompile(`^GPU-[0-9A-Za-z-]+$`)

// findGPU returns a GPU by its UUID. The caller has entered the gate.
func (l *library) findGPU(gpu string) (*device, error) {
	if dev := l.handles.get(gpu); dev != nil {
		return dev, nil
	}
	if !gpuUUIDPattern.MatchString(gpu) {
		return nil, fmt.Errorf("%q is not a GPU's UUID, which begins with GPU-: %w", gpu, nvml.ErrInvalidArgument)
	}
	epoch := l.handles.currentEpoch()
	handle, err := callValue(l, "nvmlDeviceGetHandleByUUID", func() (gonvml.Device, gonvml.Return) {
		return l.api.DeviceGetHandleByUUID(gpu)
	})
	if err != nil {
		return nil, err
	}
	return l.handles.store(gpu, handle, epoch), nil
}

// staleHandleErrors are the errors after which the handle is looked up again.
var staleHandleErrors = []nvml.Error{
	nvml.ErrGPULost, nvml.ErrResetRequired, nvml.ErrUninitialized,
	nvml.ErrInvalidState, nvml.ErrNotReady, nvml.ErrUnknown,
}

// withGPU calls do with a GPU. Its errors name the GPU.
func withGPU[T any](l *library, gpu string, do func(*device) (T, error)) (T, error) {
	var none T
	leave, err := l.gate.enter()
	if err != nil {
		return none, err
	}
	defer leave()
	dev, err := l.findGPU(gpu)
	if err != nil {
		return none, fmt.Errorf("GPU %s: %w", gpu, err)
	}
	value, err := do(dev)
	if err != nil {
		for _, code := range staleHandleErrors {
			if errors.Is(err, code) {
				l.handles.remove(dev)
			}
		}
		return none, fmt.Errorf("GPU %s: %w", gpu, err)
	}
	return value, nil
}
