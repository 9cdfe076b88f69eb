// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"slices"
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml"
)

var processCases = []testCase{
	{"a process is listed on its GPU with its memory", []Feature{writable, Processes}, processOnGPU},
	{"a process is listed on its instance", []Feature{supportsMIG, writable, Processes}, processOnInstance},
	{"a process on two instances is listed on both", []Feature{supportsMIG, writable, Processes}, processOnTwoInstances},
	{"a process blocks the destruction of its instance", []Feature{supportsMIG, writable, Processes, Guards}, processBlocksDestruction},
	{"a process blocks a change of its GPU's mode", []Feature{supportsMIG, writable, Processes, ModeGuards}, processBlocksModeChange},
	{"a GPU in MIG mode reports no utilization", []Feature{supportsMIG, writable, Utilization}, noUtilizationInMIGMode},
	{"from Hopper on, an instance reports its utilization", []Feature{supportsMIG, writable, Processes, Utilization}, instanceUtilization},
}

const testPID uint32 = 5_000_001

func (b *fixture) requireProcesses(want ...nvml.Process) {
	b.Helper()
	got, err := b.Processes(b.gpu.UUID)
	b.requireNoError(err)
	slices.SortFunc(got, func(p, q nvml.Process) int { return 1000*(int(p.PID)-int(q.PID)) + int(p.Instance) - int(q.Instance) })
	if len(got) != 0 || len(want) != 0 {
		b.requireEqual("processes", got, want)
	}
}

func processOnGPU(b *fixture) {
	b.requireProcesses()
	b.requireNoError(b.attach(testPID, b.gpu.UUID, 700))
	b.requireNoError(b.attach(testPID+1, b.gpu.UUID, nvml.UnknownMiB))
	b.requireProcesses(
		nvml.Process{PID: testPID, MemoryMiB: 700, Instance: nvml.NoInstance, Compute: nvml.NoInstance},
		nvml.Process{PID: testPID + 1, MemoryMiB: nvml.UnknownMiB, Instance: nvml.NoInstance, Compute: nvml.NoInstance},
	)
	memory, err := b.Memory(b.gpu.UUID)
	b.requireNoError(err)
	if memory.UsedMiB < 700 {
		b.Errorf("a process has 700 MiB, and the GPU %d", memory.UsedMiB)
	}
	b.detach(testPID)
	b.detach(testPID + 1)
	b.requireProcesses()
}

func processOnInstance(b *fixture) {
	for _, p := range b.allPlacements(b.enableMIG()) {
		made, compute := b.createDevice(p)
		b.requireNoError(b.attach(testPID, compute.UUID, 300))
		b.requireProcesses(nvml.Process{PID: testPID, MemoryMiB: 300, Instance: made.ID, Compute: compute.ID})
		b.detach(testPID)
		b.requireProcesses()
		b.requireNoError(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
		b.destroyInstance(made)
	}
}

func processOnTwoInstances(b *fixture) {
	made := b.fillGPU(b.smallestPlacement(b.enableMIG()).profile)
	var want []nvml.Process
	for _, it := range made[:2] {
		compute, err := b.CreateComputeInstance(b.gpu.UUID, it.ID)
		b.requireNoError(err)
		b.requireNoError(b.attach(testPID, compute.UUID, 100))
		want = append(want, nvml.Process{PID: testPID, MemoryMiB: 100, Instance: it.ID, Compute: compute.ID})
	}
	slices.SortFunc(want, func(p, q nvml.Process) int { return int(p.Instance) - int(q.Instance) })
	b.requireProcesses(want...)
}

func processBlocksDestruction(b *fixture) {
	made, compute := b.createDevice(b.smallestPlacement(b.enableMIG()))
	b.requireNoError(b.attach(testPID, compute.UUID, 100))
	b.requireError("DestroyComputeInstance", b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID), nvml.ErrInUse)
	b.requireError("DestroyInstance", b.DestroyInstance(b.gpu.UUID, made.ID), nvml.ErrInUse)
	b.requireLayout(made)
	b.requireProcesses(nvml.Process{PID: testPID, MemoryMiB: 100, Instance: made.ID, Compute: compute.ID})
	b.detach(testPID)
	b.requireNoError(b.DestroyComputeInstance(b.gpu.UUID, made.ID, compute.ID))
	b.destroyInstance(made)
}

func processBlocksModeChange(b *fixture) {
	b.requireNoError(b.attach(testPID, b.gpu.UUID, 100))
	activation, err := b.SetMIGMode(b.gpu.UUID, nvml.Enabled)
	b.requireNoError(err)
	b.requireError("what became of the mode", activation, nvml.ErrInUse)
	current, _, err := b.MIGMode(b.gpu.UUID)
	b.requireNoError(err)
	if current != nvml.Disabled {
		b.Error("the mode changed under a process")
	}
	b.requireProcesses(nvml.Process{PID: testPID, MemoryMiB: 100, Instance: nvml.NoInstance, Compute: nvml.NoInstance})
}

func noUtilizationInMIGMode(b *fixture) {
	b.enableMIG()
	_, err := b.Utilization(b.gpu.UUID)
	b.requireError("Utilization", err, nvml.ErrNotSupported)
	_, err = b.ProcessUtilization(b.gpu.UUID, time.Time{})
	b.requireError("ProcessUtilization", err, nvml.ErrNotSupported)
}

func instanceUtilization(b *fixture) {
	_, err := b.InstanceUtilization(b.gpu.UUID, 0)
	b.requireError("InstanceUtilization without MIG mode", err, nvml.ErrNotSupported)
	made := b.fillGPU(b.smallestPlacement(b.enableMIG()).profile)
	busy, idle := made[0], made[1]
	compute, err := b.CreateComputeInstance(b.gpu.UUID, busy.ID)
	b.requireNoError(err)
	b.requireNoError(b.attach(testPID, compute.UUID, 100))
	first, err := b.InstanceUtilization(b.gpu.UUID, busy.ID)
	if b.model == nil || !b.model.ModeWithoutReset {
		b.requireError("InstanceUtilization before Hopper", err, nvml.ErrNotSupported)
		return
	}
	b.requireNoError(err)
	if first != nvml.UnknownPercent {
		b.Errorf("the first sample returns %d %%; it needs a former one", first)
	}
	if got := b.nextUtilization(busy); got < 1 || got > 100 {
		b.Errorf("an instance with a process is busy by %d %%", got)
	}
	if got := b.nextUtilization(idle); got != 0 {
		b.Errorf("an instance without a process is busy by %d %%", got)
	}
	b.detach(testPID)
	b.requireNoError(b.DestroyComputeInstance(b.gpu.UUID, busy.ID, compute.ID))
	b.destroyInstance(busy)
	_, err = b.InstanceUtilization(b.gpu.UUID, busy.ID)
	b.requireError("InstanceUtilization of a former instance", err, nvml.ErrNotFound, nvml.ErrInvalidArgument)
	// The driver gives the identifier to the next instance, which has no former sample.
	next, err := b.CreateInstance(b.gpu.UUID, busy.Profile, busy.Placement)
	b.requireNoError(err)
	if got, err := b.InstanceUtilization(b.gpu.UUID, next.ID); err != nil || got != nvml.UnknownPercent {
		b.Errorf("the first sample of a new instance is %d %%, %v", got, err)
	}
}

// nextUtilization returns the utilization of an instance as soon as it is known.
func (b *fixture) nextUtilization(of nvml.Instance) int {
	b.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		got, err := b.InstanceUtilization(b.gpu.UUID, of.ID)
		b.requireNoError(err)
		if got != nvml.UnknownPercent {
			return got
		}
	}
	b.Fatal("the utilization stays unknown")
	return 0
}

var concurrencyCases = []testCase{
	{"concurrent reads succeed", nil, concurrentReads},
	{"reads during writes return whole layouts", []Feature{supportsMIG, writable}, readsDuringWrites},
}

const (
	concurrentReaders = 8
	rounds            = 10
)

func concurrentReads(b *fixture) {
	var group sync.WaitGroup
	for range concurrentReaders {
		group.Go(func() {
			for range 10 {
				gpus, err := b.GPUs()
				if err != nil || len(gpus) != len(b.gpus) {
					b.Errorf("%d GPUs of %d: %v", len(gpus), len(b.gpus), err)
				}
				for _, gpu := range gpus {
					if _, err := b.Memory(gpu.UUID); err != nil {
						b.Errorf("Memory: %v", err)
					}
					for _, c := range calls {
						if err := c.err; !c.changes {
							b.requireReadAnswer(c.method, err(b, gpu.UUID))
						}
					}
				}
			}
		})
	}
	group.Wait()
}

// requireReadAnswer fails unless a reader may get the result of any GPU: a missing object is not
// found, a missing feature is not supported or unknown.
func (b *fixture) requireReadAnswer(method string, err error) {
	b.Helper()
	for _, code := range []nvml.Error{nvml.ErrUninitialized, nvml.ErrGPULost, nvml.ErrTimeout, nvml.ErrDriverNotLoaded} {
		if errors.Is(err, code) {
			b.Errorf("%s while others read: %v", method, err)
		}
	}
}

func readsDuringWrites(b *fixture) {
	all := b.allPlacements(b.enableMIG())
	var group sync.WaitGroup
	done := make(chan struct{})
	for range concurrentReaders {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					b.requireCompleteLayout()
				}
			}
		})
	}
	func() {
		defer close(done)
		for range rounds {
			for _, p := range all {
				made, err := b.CreateInstance(b.gpu.UUID, p.profile.ID, p.at)
				if err != nil {
					b.Errorf("CreateInstance: %v", err)
					return
				}
				if err := b.DestroyInstance(b.gpu.UUID, made.ID); err != nil {
					b.Errorf("DestroyInstance: %v", err)
					return
				}
			}
		}
	}()
	group.Wait()
	b.requireLayout()
}

// requireCompleteLayout reads a layout of at most one instance. An implementation that reads one
// profile after another may return a former and a new instance.
func (b *fixture) requireCompleteLayout() {
	b.Helper()
	instances, err := b.Instances(b.gpu.UUID)
	if err != nil {
		b.Errorf("Instances: %v", err)
		return
	}
	for _, it := range instances {
		if it.Placement.Size < 1 {
			b.Errorf("half of an instance: %+v", it)
		}
		if _, err := b.ComputeInstances(b.gpu.UUID, it.ID); err != nil && !errors.Is(err, nvml.ErrNotFound) {
			b.Errorf("ComputeInstances: %v", err)
		}
	}
}
