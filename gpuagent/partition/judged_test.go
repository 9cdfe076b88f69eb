// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/nvml"
)

var errDead = errors.New("the process is dead")

// life is one process of the agent. It can end before or after the effect of each call
// to the driver and of each write to the disk; from then on nothing that it does has any
// effect.
type life struct {
	world  *world
	driver nvml.Library

	mu    sync.Mutex
	step  int // how many points there have been
	at    int // the point at which it ends; -1 for never
	dead  bool
	event map[int]func() // what happens at a point, whatever the process does
	wrote []string       // the writes to the driver
}

func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// lives passes one point and says whether the process is still there.
func (l *life) lives() bool {
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

// happen is lives where nobody cares.
func (l *life) happen() { l.lives() }

func live[T any](l *life, call func() (T, error)) (answer T, err error) {
	var none T
	if !l.lives() {
		return none, errDead
	}
	answer, err = call()
	if !l.lives() {
		return none, errDead
	}
	return answer, err
}

// mortalDisk is the disk in the eyes of one life.
type mortalDisk struct {
	*disk
	life *life
}

func (d *mortalDisk) Replace(content []byte) error {
	_, err := live(d.life, func() (struct{}, error) { return struct{}{}, d.disk.Replace(content) })
	return err
}

// judged is the driver in the eyes of one life. At each write it looks whether the write
// is announced on disk, and takes nothing from anybody, nor what is foreign.
type judged struct {
	nvml.Library
	life *life
}

func (j *judged) GPUs() ([]nvml.GPU, error) {
	return live(j.life, func() ([]nvml.GPU, error) { return j.Library.GPUs() })
}

func (j *judged) Processes(gpu string) ([]nvml.Process, error) {
	return live(j.life, func() ([]nvml.Process, error) { return j.Library.Processes(gpu) })
}

func (j *judged) MIGMode(gpu string) (current, pending nvml.Mode, err error) {
	modes, err := live(j.life, func() (m [2]nvml.Mode, err error) {
		m[0], m[1], err = j.Library.MIGMode(gpu)
		return m, err
	})
	return modes[0], modes[1], err
}

func (j *judged) Profiles(gpu string) ([]nvml.Profile, error) {
	return live(j.life, func() ([]nvml.Profile, error) { return j.Library.Profiles(gpu) })
}

func (j *judged) Placements(gpu string, p nvml.ProfileID) ([]nvml.Placement, error) {
	return live(j.life, func() ([]nvml.Placement, error) { return j.Library.Placements(gpu, p) })
}

func (j *judged) Instances(gpu string) ([]nvml.Instance, error) {
	return live(j.life, func() ([]nvml.Instance, error) { return j.Library.Instances(gpu) })
}

func (j *judged) ComputeInstances(gpu string, id uint32) ([]nvml.ComputeInstance, error) {
	return live(j.life, func() ([]nvml.ComputeInstance, error) { return j.Library.ComputeInstances(gpu, id) })
}

func (j *judged) SetMIGMode(gpu string, mode nvml.Mode) (activation, err error) {
	return live(j.life, func() (error, error) {
		j.announced(gpu, journal.SetMode, 0)
		current := j.life.world.mode(gpu)
		if current != mode {
			j.untaken(gpu, "SetMIGMode")
		}
		return j.Library.SetMIGMode(gpu, mode)
	})
}

func (j *judged) Reset(gpu string) error {
	_, err := live(j.life, func() (struct{}, error) {
		j.announced(gpu, journal.Reset, 0)
		j.untaken(gpu, "Reset")
		return struct{}{}, j.Library.Reset(gpu)
	})
	return err
}

func (j *judged) CreateInstance(gpu string, p nvml.ProfileID, at nvml.Placement) (nvml.Instance, error) {
	return live(j.life, func() (nvml.Instance, error) {
		j.announced(gpu, journal.CreateInstance, 0)
		return j.Library.CreateInstance(gpu, p, at)
	})
}

func (j *judged) CreateComputeInstance(gpu string, id uint32) (nvml.ComputeInstance, error) {
	return live(j.life, func() (nvml.ComputeInstance, error) {
		j.announced(gpu, journal.CreateCompute, id)
		return j.Library.CreateComputeInstance(gpu, id)
	})
}

func (j *judged) DestroyComputeInstance(gpu string, id, compute uint32) error {
	_, err := live(j.life, func() (struct{}, error) {
		j.announced(gpu, journal.DestroyCompute, id)
		j.untakenInstance(gpu, id, "DestroyComputeInstance")
		return struct{}{}, j.Library.DestroyComputeInstance(gpu, id, compute)
	})
	return err
}

func (j *judged) DestroyInstance(gpu string, id uint32) error {
	_, err := live(j.life, func() (struct{}, error) {
		j.announced(gpu, journal.DestroyInstance, id)
		j.untakenInstance(gpu, id, "DestroyInstance")
		return struct{}{}, j.Library.DestroyInstance(gpu, id)
	})
	return err
}

// announced holds the write to what another process would read on the disk now.
func (j *judged) announced(gpu string, act journal.Act, id uint32) {
	w := j.life.world
	j.life.mu.Lock()
	j.life.wrote = append(j.life.wrote, string(act))
	j.life.mu.Unlock()
	content, _ := w.disk.Load()
	copied := &disk{content: content}
	read, err := journal.Open(copied, "node", fmt.Sprint("boot-", w.boot))
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	change, ok := read.Change(gpu)
	if !ok || change.Next.Act != act || change.Next.Instance.ID != id {
		w.t.Errorf("%s %d on %s was made without being announced: on disk is %+v", act, id, gpu, change.Next)
	}
}

// untaken holds that no pod has anything of the GPU.
func (j *judged) untaken(gpu, call string) {
	w := j.life.world
	w.mu.Lock()
	_, whole := w.pods[gpu]
	w.mu.Unlock()
	if whole {
		w.t.Errorf("%s on %s, which a pod has", call, gpu)
	}
	for _, it := range w.layout(gpu) {
		if it.busy || w.isForeign(it.device) {
			w.t.Errorf("%s on %s takes away %+v", call, gpu, it)
		}
	}
}

// untakenInstance holds that no pod has the instance, and that it is Sluice's. A process
// that came in the last moment the driver itself protects.
func (j *judged) untakenInstance(gpu string, id uint32, call string) {
	w := j.life.world
	for _, it := range w.layout(gpu) {
		w.mu.Lock()
		_, taken := w.pods[it.device]
		w.mu.Unlock()
		if it.id == id && (taken || w.isForeign(it.device)) {
			w.t.Errorf("%s of %+v, which a pod has or which is foreign", call, it)
		}
	}
}

func (w *world) isForeign(device string) bool {
	return slices.Contains(w.strangers, device) && device != ""
}
