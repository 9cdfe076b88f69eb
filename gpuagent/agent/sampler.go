// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/shares"
	"sluice.dev/gpuagent/utilization"
)

// sampler samples the use of the GPUs at its own pace. It reads the GPUs, instances and holders that the
// reconciler observed last, and no GPU that the reconciler reported as unhealthy. A hung GPU delays no
// other, and never the reconciler.
type sampler struct {
	log      logr.Logger
	library  nvml.Library
	interval time.Duration
	// instances returns the first slices of a GPU's instances by identifier, as last read.
	instances func(gpu string) map[uint32]int
	// exporter measures the instances that the driver does not.
	exporter *exporterReader
	// published returns the GPUNode, from which the first sample continues.
	published func() *v1alpha1.GPUNode

	// reserved has a reservedMemory for each GPU that is not in MIG mode.
	reserved sync.Map
	observed atomic.Pointer[observation]
	latest   atomic.Pointer[utilization.Result]
	// processes are those of the last sample.
	processes atomic.Pointer[map[uint32]utilization.Process]

	mu       sync.Mutex // guards a sample, and the fields below
	resolver host.PodResolver
	tracker  utilization.Tracker
	shares   shares.Tracker
	restored bool
	// firstAt is the time of the first sample, with Go's monotonic reading.
	firstAt time.Time
	layouts map[string]exporterLayout // of the GPUs that only the exporter measures
	// unsupportedAt is when the driver last refused to measure the instances of a GPU.
	unsupportedAt map[string]time.Time
	// invalidThresholds are the errors of the pods' thresholds in the last sample.
	invalidThresholds map[types.UID]error
	pending           map[string]chan struct{} // the GPUs whose last reading has not returned
}

// readTimeout is the time that a sample waits for a GPU.
const readTimeout = 2 * time.Second

// start samples until ctx ends.
func (s *sampler) start(ctx context.Context) error {
	for sleep(ctx, s.interval, nil) {
		s.sample()
	}
	return nil
}

// observe passes on what the reconciler observed. Pods that the last sample did not have are sampled at
// once, so that the GPUNode never reports a pod without its use.
func (s *sampler) observe(o observation) *utilization.Result {
	if o.gpus == nil || o.holdersErr != nil {
		s.observed.Store(nil)
		lastSample.Store(nil)
		return nil
	}
	s.observed.Store(&o)
	latest := s.latest.Load()
	isNew := func(use v1alpha1.PodUsage) bool {
		_, known := latest.Pods[use.UID]
		return !known && !strings.Contains(string(use.UID), "/") // a pod that the API server no longer has
	}
	if latest == nil || slices.ContainsFunc(o.holders.PodUses(), isNew) {
		s.sample()
	}
	return s.latest.Load()
}

// sample samples all GPUs.
func (s *sampler) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.observed.Load()
	if o == nil {
		return
	}
	if !s.restored {
		if node := s.published(); node != nil && node.Status.SampledAt != nil {
			s.tracker.Restore(node.Status.Pods, node.Status.SampledAt.Time)
			s.shares.Restore(node.Status.Findings, node.Status.SampledAt.Time)
		}
		s.restored, s.firstAt = true, time.Now()
	}
	at := time.Now()
	var sources map[string]v1alpha1.UtilizationSource
	if last := s.latest.Load(); last != nil {
		sources = last.Sources
	}
	readings := s.readGPUs(o.gpus, sources, at)
	properties, invalid := podProperties(o.holders)
	s.logInvalidThresholds(o.holders.Pods, invalid)
	sample := utilization.Sample{At: at, Pods: properties}
	s.resolver.NextRound()
	needsExporter := false
	for i := range o.gpus {
		gpu := &o.gpus[i]
		if r := readings[string(gpu.UUID)]; r != nil && r.needsExporter {
			needsExporter = true
			if !r.skipped {
				s.unsupportedAt[string(gpu.UUID)] = at
			}
			if busy, ok := s.busyInstances(string(gpu.UUID), r.starts, deviceSignature(gpu), o, at); ok {
				r.source, r.busyByStart = v1alpha1.UtilizationDCGM, busy
			}
		}
		sample.Devices = append(sample.Devices, s.newDevices(gpu, readings[string(gpu.UUID)], o.holders)...)
	}
	s.exporter.needed.Store(needsExporter)
	s.processes.Store(processesByPID(sample.Devices))
	result := s.tracker.Add(sample)
	s.addShares(&result, o, readings)
	s.latest.Store(&result)
	lastSample.Store(&sampledNode{result: &result, gpus: o.gpus, holders: o.holders})
}

// gpuReading is what the driver reports about the use of one GPU.
type gpuReading struct {
	source    v1alpha1.UtilizationSource
	processes []nvml.Process
	// processesErr is why the processes are unknown.
	processesErr error
	// busyByPID is the utilization of each process; nil if it was not measured.
	busyByPID map[uint32]int
	// busy is the utilization of the whole GPU; busyByStart are those of its instances, by first slice.
	busy        int
	busyByStart map[int]int
	// starts are the first slices of the instances by identifier.
	starts map[uint32]int
	// reservedMiB is the memory that the driver keeps for itself.
	reservedMiB int64
	// needsExporter reports that the driver cannot measure the instances; skipped, that it was not called again.
	needsExporter, skipped bool
}

// unsupportedPeriod is the time for which the driver is not called again for what it cannot measure.
const unsupportedPeriod = time.Minute

// processesByPID returns the processes on the devices.
func processesByPID(list []utilization.Device) *map[uint32]utilization.Process {
	processes := map[uint32]utilization.Process{}
	for i := range list {
		for _, p := range list[i].Processes {
			processes[p.PID] = p
		}
	}
	return &processes
}

// processOwner returns the UIDs of the pods of a process, or its description outside of pods, as of the last
// sample, or as its cgroup shows now if the sample did not have it. Any goroutine may call it.
func (s *sampler) processOwner(pid uint32) (pods []types.UID, other *v1alpha1.OtherProcess, err error) {
	if processes := s.processes.Load(); processes != nil {
		if p, known := (*processes)[pid]; known && p.Pod != "" {
			return []types.UID{p.Pod}, nil, nil
		} else if known {
			return nil, p.Other, nil
		}
	}
	return host.ProcessOwner(s.resolver.Proc, pid)
}

// readGPUs reads the healthy GPUs, all at the same time. It leaves out those that do not answer. sources are
// those of the last sample.
func (s *sampler) readGPUs(gpus []v1alpha1.ObservedGPU, sources map[string]v1alpha1.UtilizationSource, at time.Time) map[string]*gpuReading {
	if s.pending == nil {
		s.pending, s.unsupportedAt = map[string]chan struct{}{}, map[string]time.Time{}
	}
	readings := make([]*gpuReading, len(gpus))
	waits := make([]chan struct{}, len(gpus))
	for i := range gpus {
		gpu := &gpus[i]
		uuid := string(gpu.UUID)
		if last := s.pending[uuid]; gpu.Health != v1alpha1.GPUHealthy || last != nil && !isClosed(last) {
			continue
		}
		done := make(chan struct{})
		s.pending[uuid], waits[i], readings[i] = done, done, &gpuReading{
			source: sources[uuid], busy: nvml.UnknownPercent, skipped: at.Sub(s.unsupportedAt[uuid]) < unsupportedPeriod,
		}
		migEnabled := gpu.MIG.Current == v1alpha1.MIGModeEnabled
		go func() {
			defer close(done)
			s.readGPU(readings[i], uuid, migEnabled, at)
		}()
	}
	byUUID := map[string]*gpuReading{}
	timeout := time.NewTimer(readTimeout)
	defer timeout.Stop()
	expired := false
	for i, done := range waits {
		if done == nil {
			continue
		}
		if !expired {
			select {
			case <-done:
			case <-timeout.C:
				expired = true
			}
		}
		if isClosed(done) {
			byUUID[string(gpus[i].UUID)] = readings[i]
		}
	}
	return byUUID
}

func isClosed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// processSampleAge is the age up to which a driver's sample of a process counts. The driver takes up to six
// samples a second, and none of processes that do nothing.
const processSampleAge = 2 * time.Second

// readGPU reads one GPU.
func (s *sampler) readGPU(r *gpuReading, gpu string, migEnabled bool, at time.Time) {
	r.processes, r.processesErr = s.library.Processes(gpu)
	if migEnabled {
		s.readInstances(r, gpu)
		return
	}
	r.reservedMiB = s.readReserved(gpu, at)
	samples, err := s.library.ProcessUtilization(gpu, at.Add(-processSampleAge))
	if err == nil {
		r.busyByPID = map[uint32]int{}
		for _, sample := range samples {
			r.busyByPID[sample.PID] = sample.SM
		}
	} else if errors.Is(err, nvml.ErrNotSupported) {
		r.busy, err = s.library.Utilization(gpu)
	}
	r.source = v1alpha1.UtilizationNVML
	if errors.Is(err, nvml.ErrNotSupported) {
		r.source = v1alpha1.UtilizationUnavailable
	}
	if err != nil {
		r.busy = nvml.UnknownPercent
	}
}

// readInstances reads the utilization of a GPU's instances. Without an instance the source stays that of the
// last sample.
func (s *sampler) readInstances(r *gpuReading, gpu string) {
	r.starts, r.busyByStart = s.instances(gpu), map[int]int{}
	if r.skipped {
		r.source, r.needsExporter = v1alpha1.UtilizationUnavailable, true
		return
	}
	for id, start := range r.starts {
		busy, err := s.library.InstanceUtilization(gpu, id)
		if errors.Is(err, nvml.ErrNotSupported) {
			r.source, r.needsExporter = v1alpha1.UtilizationUnavailable, true
			return
		}
		r.source = v1alpha1.UtilizationGPM
		if err == nil && busy != nvml.UnknownPercent {
			r.busyByStart[start] = busy
		}
	}
}
