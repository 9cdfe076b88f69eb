// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"maps"
	"slices"

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
	epoch := l.handles.now()
	count, err := ask(l, "nvmlDeviceGetCount", l.api.DeviceGetCount)
	if err != nil {
		return nil, err
	}
	gpus := make([]nvml.GPU, count)
	for i := range gpus {
		gpus[i] = l.describe(i, epoch)
	}
	l.handles.name(gpus)
	return gpus, nil
}

// describe is the GPU of an index. What it does not tell is empty, with the reason in Err.
func (l *library) describe(index, epoch int) nvml.GPU {
	gpu := nvml.GPU{Index: index}
	handle, err := ask(l, "nvmlDeviceGetHandleByIndex", func() (gonvml.Device, gonvml.Return) {
		return l.api.DeviceGetHandleByIndex(index)
	})
	if err != nil {
		gpu.Err = err
		return gpu
	}
	if gpu.UUID, gpu.Err = ask(l, "nvmlDeviceGetUUID", handle.GetUUID); gpu.Err != nil {
		return gpu
	}
	l.handles.keep(gpu.UUID, handle, epoch)
	if gpu.Name, gpu.Err = ask(l, "nvmlDeviceGetName", handle.GetName); gpu.Err != nil {
		return gpu
	}
	pci, err := ask(l, "nvmlDeviceGetPciInfo", handle.GetPciInfo)
	if err != nil {
		gpu.Err = err
		return gpu
	}
	gpu.PCIDevice = pci.PciDeviceId
	memory, err := ask(l, "nvmlDeviceGetMemoryInfo", handle.GetMemoryInfo)
	if err != nil && !errors.Is(err, nvml.ErrNotSupported) { // a GPU that has none of its own
		gpu.Err = err
		return gpu
	}
	gpu.MemoryMiB = int64(memory.Total / mebibyte)
	return gpu
}

// name gives GPUs that do not tell their UUIDs the ones that they had when they last did,
// where no other has it now; and remembers them all.
func (h *handles) name(gpus []nvml.GPU) {
	h.mu.Lock()
	defer h.mu.Unlock()
	places := map[int]string{}
	for _, gpu := range gpus {
		if gpu.UUID != "" {
			places[gpu.Index] = gpu.UUID
		}
	}
	told := slices.Collect(maps.Values(places))
	for i := range gpus {
		last, known := h.places[gpus[i].Index]
		if gpus[i].UUID == "" && known && !slices.Contains(told, last) {
			gpus[i].UUID, places[gpus[i].Index] = last, last
		}
	}
	h.places = places
}

// Memory implements nvml.Library. What the driver keeps for itself does not count as
// used where the library tells it apart.
func (l *library) Memory(gpu string) (nvml.Memory, error) {
	return on(l, gpu, func(dev *device) (nvml.Memory, error) {
		if m, err := ask(l, "nvmlDeviceGetMemoryInfo_v2", dev.GetMemoryInfo_v2); err == nil {
			return nvml.Memory{TotalMiB: int64(m.Total / mebibyte), UsedMiB: int64(m.Used / mebibyte)}, nil
		}
		m, err := ask(l, "nvmlDeviceGetMemoryInfo", dev.GetMemoryInfo)
		return nvml.Memory{TotalMiB: int64(m.Total / mebibyte), UsedMiB: int64(m.Used / mebibyte)}, err
	})
}

// Utilisation implements nvml.Library.
func (l *library) Utilisation(gpu string) (int, error) {
	return on(l, gpu, func(dev *device) (int, error) {
		rates, err := ask(l, "nvmlDeviceGetUtilizationRates", dev.GetUtilizationRates)
		return int(rates.Gpu), err
	})
}
