// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"sluice.dev/gpuagent/nvml"
)

var errProcessDead = errors.New("the process is dead")

// processLife is one process of the agent. It can end before or after the effect of each driver
// call and each disk write; from then on it has no effect.
type processLife struct {
	node   *testNode
	driver nvml.Library

	mu    sync.Mutex
	step  int // the number of points so far
	at    int // the point at which it ends; -1 for never
	dead  bool
	event map[int]func() // runs at each point
	wrote []string       // the writes to the driver
}

func (l *processLife) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// passPoint passes one point and reports whether the process is still alive.
func (l *processLife) passPoint() bool {
	l.mu.Lock()
	if l.step == l.at {
		l.dead = true
	}
	event := l.event[l.step]
	l.step++
	alive := !l.dead
	l.mu.Unlock()
	if event != nil && alive {
		event()
	}
	return alive
}

// advance passes a point of a life that does not end.
func (l *processLife) advance() { l.passPoint() }

func callAlive[T any](l *processLife, call func() (T, error)) (answer T, err error) {
	var none T
	if !l.passPoint() {
		return none, errProcessDead
	}
	answer, err = call()
	if !l.passPoint() {
		return none, errProcessDead
	}
	return answer, err
}

// crashingStore is the disk of one life.
type crashingStore struct {
	*memoryStore
	life *processLife
}

func (d *crashingStore) Replace(content []byte) error {
	_, err := callAlive(d.life, func() (struct{}, error) { return struct{}{}, d.memoryStore.Replace(content) })
	return err
}

// checkingLibrary is the driver of one life. It checks that each write is announced on disk and
// affects no held or foreign instance.
type checkingLibrary struct {
	nvml.Library
	life *processLife
}

func (j *checkingLibrary) GPUs() ([]nvml.GPU, error) {
	return callAlive(j.life, func() ([]nvml.GPU, error) { return j.Library.GPUs() })
}

func (j *checkingLibrary) Processes(gpu string) ([]nvml.Process, error) {
	return callAlive(j.life, func() ([]nvml.Process, error) { return j.Library.Processes(gpu) })
}

func (j *checkingLibrary) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	modes, err := callAlive(j.life, func() (m [2]nvml.Mode, err error) {
		m[0], m[1], err = j.Library.MIGMode(gpu)
		return m, err
	})
	return modes[0], modes[1], err
}

func (j *checkingLibrary) Profiles(gpu string) ([]nvml.Profile, error) {
	return callAlive(j.life, func() ([]nvml.Profile, error) { return j.Library.Profiles(gpu) })
}

func (j *checkingLibrary) Placements(gpu string, p nvml.ProfileID) ([]nvml.Placement, error) {
	return callAlive(j.life, func() ([]nvml.Placement, error) { return j.Library.Placements(gpu, p) })
}

func (j *checkingLibrary) Instances(gpu string) ([]nvml.Instance, error) {
	return callAlive(j.life, func() ([]nvml.Instance, error) { return j.Library.Instances(gpu) })
}

func (j *checkingLibrary) ComputeInstances(gpu string, id uint32) ([]nvml.ComputeInstance, error) {
	return callAlive(j.life, func() ([]nvml.ComputeInstance, error) { return j.Library.ComputeInstances(gpu, id) })
}

func (j *checkingLibrary) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	return callAlive(j.life, func() (error, error) {
		j.requireJournaled(gpu, OpSetMIGMode, 0)
		current := j.life.node.mode(gpu)
		if current != mode {
			j.requireGPUUnheld(gpu, "SetMIGMode")
		}
		return j.Library.SetMIGMode(gpu, mode)
	})
}

func (j *checkingLibrary) Reset(gpu string) error {
	_, err := callAlive(j.life, func() (struct{}, error) {
		j.requireJournaled(gpu, OpReset, 0)
		j.requireGPUUnheld(gpu, "Reset")
		return struct{}{}, j.Library.Reset(gpu)
	})
	return err
}

func (j *checkingLibrary) CreateInstance(gpu string, p nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	return callAlive(j.life, func() (nvml.Instance, error) {
		j.requireJournaled(gpu, OpCreateInstance, 0)
		return j.Library.CreateInstance(gpu, p, at)
	})
}

func (j *checkingLibrary) CreateComputeInstance(gpu string, id uint32) (nvml.ComputeInstance, error) {
	return callAlive(j.life, func() (nvml.ComputeInstance, error) {
		j.requireJournaled(gpu, OpCreateComputeInstance, id)
		return j.Library.CreateComputeInstance(gpu, id)
	})
}

func (j *checkingLibrary) DestroyComputeInstance(gpu string, id, compute uint32) error {
	_, err := callAlive(j.life, func() (struct{}, error) {
		j.requireJournaled(gpu, OpDestroyComputeInstance, id)
		j.requireInstanceUnheld(gpu, id, "DestroyComputeInstance")
		return struct{}{}, j.Library.DestroyComputeInstance(gpu, id, compute)
	})
	return err
}

func (j *checkingLibrary) DestroyInstance(gpu string, id uint32) error {
	_, err := callAlive(j.life, func() (struct{}, error) {
		j.requireJournaled(gpu, OpDestroyInstance, id)
		j.requireInstanceUnheld(gpu, id, "DestroyInstance")
		return struct{}{}, j.Library.DestroyInstance(gpu, id)
	})
	return err
}

// requireJournaled fails unless another process would read the write from the disk now.
func (j *checkingLibrary) requireJournaled(gpu string, act Operation, id uint32) {
	w := j.life.node
	j.life.mu.Lock()
	j.life.wrote = append(j.life.wrote, string(act))
	j.life.mu.Unlock()
	content, _ := w.disk.Load()
	copied := &memoryStore{content: content}
	read, err := OpenJournal(copied, "node", fmt.Sprint("boot-", w.boot))
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	change, ok := read.PendingChange(gpu)
	if !ok || change.Next.Operation != act || change.Next.Instance.ID != id {
		w.t.Errorf("%s %d on %s was made without being announced: on disk is %+v", act, id, gpu, change.Next)
	}
}

// requireGPUUnheld fails if a pod has a device of the GPU.
func (j *checkingLibrary) requireGPUUnheld(gpu, call string) {
	w := j.life.node
	w.mu.Lock()
	_, whole := w.pods[gpu]
	w.mu.Unlock()
	if whole {
		w.t.Errorf("%s on %s, which a pod has", call, gpu)
	}
	for _, it := range w.layout(gpu) {
		if it.busy || w.isForeign(it.device) {
			w.t.Errorf("%s on %s destroys %+v", call, gpu, it)
		}
	}
}

// requireInstanceUnheld fails if a pod has the instance, or if it is foreign. The driver itself
// protects a process that arrived at the last moment.
func (j *checkingLibrary) requireInstanceUnheld(gpu string, id uint32, call string) {
	w := j.life.node
	for _, it := range w.layout(gpu) {
		w.mu.Lock()
		_, taken := w.pods[it.device]
		w.mu.Unlock()
		if it.id == id && (taken || w.isForeign(it.device)) {
			w.t.Errorf("%s of %+v, which a pod has or which is foreign", call, it)
		}
	}
}

func (w *testNode) isForeign(device string) bool {
	return slices.Contains(w.strangers, device) && device != ""
}
