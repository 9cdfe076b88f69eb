// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// minSampleInterval is the shortest time between the two samples of GPU performance monitoring (GPM)
// from which the library computes a utilization.
const minSampleInterval = 100 * time.Millisecond

// instanceSamples are the last samples of a GPU's instances. The library allocates them outside of Go's
// memory.
type instanceSamples struct {
	mu        sync.Mutex
	supported *bool // whether the GPU has GPM; nil before the first call
	last      map[uint32]instanceSample
}

type instanceSample struct {
	gonvml.GpmSample
	at time.Time
}

// InstanceUtilization implements nvml.Library.
func (l *library) InstanceUtilization(gpu string, instance uint32) (int, error) {
	return withGPU(l, gpu, func(dev *device) (int, error) {
		s := &dev.utilization
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := l.checkSampleSupport(dev); err != nil {
			return 0, err
		}
		former, hasFormer := s.last[instance]
		if hasFormer && time.Since(former.at) < minSampleInterval {
			return nvml.UnknownPercent, nil
		}
		sample, err := l.sampleInstance(dev, instance)
		if err != nil {
			s.dropLocked(instance)
			return 0, err
		}
		if s.last == nil {
			s.last = map[uint32]instanceSample{}
		}
		s.last[instance] = sample
		if !hasFormer {
			return nvml.UnknownPercent, nil
		}
		defer func() { _ = former.Free() }()
		return l.utilizationBetween(former, sample)
	})
}

// checkSampleSupport returns ErrNotSupported if the GPU has no GPM, or no instances. The caller holds the
// lock of its samples.
func (l *library) checkSampleSupport(dev *device) error {
	mode, err := l.readMode(dev)
	if err != nil {
		return err
	}
	if mode.current != nvml.Enabled {
		return fmt.Errorf("it is not in MIG mode: %w", nvml.ErrNotSupported)
	}
	if dev.utilization.supported == nil {
		support, err := callValue(l, "nvmlGpmQueryDeviceSupport", dev.GpmQueryDeviceSupport)
		if err != nil {
			return err
		}
		supported := support.IsSupportedDevice != 0
		dev.utilization.supported = &supported
	}
	if !*dev.utilization.supported {
		return fmt.Errorf("it has no GPU performance monitoring: %w", nvml.ErrNotSupported)
	}
	return nil
}

func (l *library) sampleInstance(dev *device, instance uint32) (instanceSample, error) {
	sample, err := callValue(l, "nvmlGpmSampleAlloc", l.api.GpmSampleAlloc)
	if err != nil {
		return instanceSample{}, err
	}
	err = l.call("nvmlGpmMigSampleGet", func() gonvml.Return { return dev.GpmMigSampleGet(int(instance), sample) })
	if err != nil {
		_ = sample.Free()
		return instanceSample{}, fmt.Errorf("GPU instance %d: %w", instance, err)
	}
	return instanceSample{sample, time.Now()}, nil
}

// utilizationBetween returns the utilization between two samples. Another program may have replaced the
// instance between them; what the library then computes need not be a percentage.
func (l *library) utilizationBetween(former, sample instanceSample) (int, error) {
	get := gonvml.GpmMetricsGetType{NumMetrics: 1, Sample1: former.GpmSample, Sample2: sample.GpmSample}
	get.Metrics[0].MetricId = uint32(gonvml.GPM_METRIC_GRAPHICS_UTIL)
	if err := l.call("nvmlGpmMetricsGet", func() gonvml.Return { return l.api.GpmMetricsGet(&get) }); err != nil {
		return 0, err
	}
	metric := get.Metrics[0]
	if err := toError("nvmlGpmMetricsGet", gonvml.Return(metric.NvmlReturn)); errors.Is(err, noData) {
		return nvml.UnknownPercent, nil
	} else if err != nil {
		return 0, err
	}
	if !(metric.Value >= 0 && metric.Value <= 100) {
		return nvml.UnknownPercent, nil
	}
	return int(math.Ceil(metric.Value)), nil // A little use is not none.
}

// drop frees the sample of one instance.
func (s *instanceSamples) drop(instance uint32) {
	if s.mu.TryLock() { // A hung call keeps the lock, and its sample.
		defer s.mu.Unlock()
		s.dropLocked(instance)
	}
}

func (s *instanceSamples) dropLocked(instance uint32) {
	if former, ok := s.last[instance]; ok {
		_ = former.Free()
		delete(s.last, instance)
	}
}

// free frees all samples.
func (s *instanceSamples) free() {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	for instance := range s.last {
		s.dropLocked(instance)
	}
}
