// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// maxReadingAge is the time for which Observe uses the compute instances that it read. The driver reuses
// identifiers, so it then reads all of them again.
const maxReadingAge = time.Minute

// knownDevices are the compute instances of GPU instances, each with its identifier, profile and place.
type knownDevices map[nvml.Instance][]nvml.ComputeInstance

// readings caches what Observe read: the compute instances, since a GPU with seven instances takes over
// a hundred calls of the driver to list them, and the processes. Decisions never use it.
type readings struct {
	mu    sync.Mutex
	byGPU map[string]reading
}

type reading struct {
	devices   knownDevices
	readAt    time.Time
	processes []nvml.Process
	starts    map[uint32]int
}

// computeInstances returns the known compute instances of a GPU; nil if they are too old.
func (r *readings) computeInstances(gpu string, now time.Time) knownDevices {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.byGPU[gpu]; known.isFresh(now) {
		return known.devices
	}
	return nil
}

func (r reading) isFresh(now time.Time) bool {
	age := now.Sub(r.readAt)
	return age >= 0 && age < maxReadingAge
}

// store keeps a reading of a GPU, or forgets the GPU without one. Incomplete instances are read again
// each time.
func (r *readings) store(gpu string, p *observedGPU, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == nil {
		delete(r.byGPU, gpu)
		return
	}
	next := reading{devices: knownDevices{}, readAt: now, processes: p.processes, starts: map[uint32]int{}}
	if before := r.byGPU[gpu]; before.isFresh(now) {
		next.readAt = before.readAt
	}
	for i := range p.instances {
		it := &p.instances[i]
		next.starts[it.id] = it.start
		if len(it.computes) == 1 {
			at := nvml.Placement{Start: it.start, Size: it.size}
			next.devices[nvml.Instance{ID: it.id, Profile: it.driverProfile, Placement: at}] = it.computes
		}
	}
	if r.byGPU == nil {
		r.byGPU = map[string]reading{}
	}
	r.byGPU[gpu] = next
}

// drop forgets a GPU whose layout may have changed.
func (r *readings) drop(gpu string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byGPU, gpu)
}

// dropAll forgets all GPUs.
func (r *readings) dropAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byGPU = nil
}

// Running returns the processes on a GPU as Observe last read them, and the first slices of its
// instances by identifier.
func (e *Engine) Running(gpu string) (processes []nvml.Process, starts map[uint32]int) {
	e.readings.mu.Lock()
	defer e.readings.mu.Unlock()
	last := e.readings.byGPU[gpu]
	return last.processes, last.starts
}
