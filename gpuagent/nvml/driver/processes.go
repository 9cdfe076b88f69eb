// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// Processes implements nvml.Library. Graphics and MPS processes may be unsupported by a GPU model
// or a library, compute processes may not.
func (l *library) Processes(gpu string) ([]nvml.Process, error) {
	return withGPU(l, gpu, func(dev *device) ([]nvml.Process, error) {
		found, err := callValue(l, "nvmlDeviceGetComputeRunningProcesses", dev.GetComputeRunningProcesses)
		if err != nil {
			return nil, err
		}
		for function, call := range map[string]func() ([]gonvml.ProcessInfo, gonvml.Return){
			"nvmlDeviceGetGraphicsRunningProcesses":   dev.GetGraphicsRunningProcesses,
			"nvmlDeviceGetMPSComputeRunningProcesses": dev.GetMPSComputeRunningProcesses,
		} {
			more, err := callValue(l, function, call)
			if err != nil && !errors.Is(err, nvml.ErrNotSupported) {
				return nil, err
			}
			found = append(found, more...)
		}
		return mergeProcesses(found), nil
	})
}

// mergeProcesses merges the library's lists, each process once per instance, sorted. A process in
// two lists has the same memory in both, or is known in one only.
func mergeProcesses(found []gonvml.ProcessInfo) []nvml.Process {
	type place struct{ pid, instance, compute uint32 }
	merged := map[place]nvml.Process{}
	for _, info := range found {
		it := nvml.Process{
			PID: info.Pid, MemoryMiB: nvml.UnknownMiB,
			Instance: info.GpuInstanceId, Compute: info.ComputeInstanceId,
		}
		if info.UsedGpuMemory != math.MaxUint64 {
			it.MemoryMiB = int64(info.UsedGpuMemory / mebibyte)
		}
		at := place{it.PID, it.Instance, it.Compute}
		if other, seen := merged[at]; seen {
			it.MemoryMiB = max(it.MemoryMiB, other.MemoryMiB)
		}
		merged[at] = it
	}
	return slices.SortedFunc(maps.Values(merged), func(a, b nvml.Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Compute, b.Compute))
	})
}

// noData are the library's results without samples besides ErrNotFound; insufficientSize is the
// binding's, also if the list grew between its two calls.
const (
	noData           = nvml.Error(gonvml.ERROR_NO_DATA)
	insufficientSize = nvml.Error(gonvml.ERROR_INSUFFICIENT_SIZE)
)

// ProcessUtilization implements nvml.Library.
func (l *library) ProcessUtilization(gpu string, since time.Time) ([]nvml.ProcessSample, error) {
	return withGPU(l, gpu, func(dev *device) ([]nvml.ProcessSample, error) {
		read := func() ([]gonvml.ProcessUtilizationSample, gonvml.Return) {
			return dev.GetProcessUtilization(uint64(max(0, since.UnixMicro())))
		}
		const function = "nvmlDeviceGetProcessUtilization"
		found, err := callValue(l, function, read)
		if errors.Is(err, nvml.ErrUnknown) { // The list grew, and the binding panicked.
			found, err = callValue(l, function, read)
		}
		switch {
		case errors.Is(err, nvml.ErrNotFound), errors.Is(err, noData), errors.Is(err, insufficientSize):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return newestSamples(found, since), nil
	})
}

// newestSamples returns the newest sample of each process. The library pads its list with entries
// without a process, and sometimes reports thousands of percent.
func newestSamples(found []gonvml.ProcessUtilizationSample, since time.Time) []nvml.ProcessSample {
	newest := map[uint32]nvml.ProcessSample{}
	for _, s := range found {
		it := nvml.ProcessSample{PID: s.Pid, At: time.UnixMicro(int64(s.TimeStamp)), SM: int(s.SmUtil)}
		if s.Pid == 0 || s.SmUtil > 100 || !it.At.After(since) {
			continue
		}
		if other, seen := newest[s.Pid]; !seen || it.At.After(other.At) {
			newest[s.Pid] = it
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b nvml.ProcessSample) int { return cmp.Compare(a.PID, b.PID) })
}
