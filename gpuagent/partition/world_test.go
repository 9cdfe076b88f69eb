// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/journal"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// reporter is what the world needs of a test.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// world is a node, its disk, its kubelet, and the judge who sees each call.
type world struct {
	t    reporter
	sim  *simulator.Node
	disk *disk
	boot int

	mu        sync.Mutex
	pods      map[string]Holder // by device
	deaf      error             // what the kubelet answers
	question  func()            // what happens when it is asked
	judging   *atomic.Int32     // whether it is the test that asks the driver
	processes int               // how many there were
	now       time.Time

	strangers []string // devices that are never to be touched
	adoptable []string // devices of others that the spec asks for
	engine    *Engine
	life      *life
}

// disk is a journal's store in memory.
type disk struct {
	mu      sync.Mutex
	content []byte
	full    bool
	writes  int
}

func (d *disk) Load() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.content == nil {
		return nil, fs.ErrNotExist
	}
	return bytes.Clone(d.content), nil
}

func (d *disk) Replace(content []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return syscall.ENOSPC
	}
	d.content = bytes.Clone(content)
	d.writes++
	return nil
}

func (d *disk) SetAside() (string, error) { return "journal.unbelieved", nil }

func newWorld(t reporter, gpus ...simulator.GPU) *world {
	t.Helper()
	sim, err := simulator.New(simulator.Config{GPUs: gpus, Seed: "node", Order: simulator.None})
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := &world{t: t, sim: sim, disk: &disk{}, boot: 1, judging: &atomic.Int32{}, pods: map[string]Holder{}, now: time.Unix(1_800_000_000, 0)}
	if err := sim.Init(); err != nil {
		t.Fatalf("%v", err)
	}
	w.start()
	return w
}

// start starts the agent's process anew, the former one being dead.
func (w *world) start() {
	w.t.Helper()
	if w.life != nil {
		w.life.end()
	}
	w.life = &life{world: w, at: -1, driver: w.sim.Open()}
	if err := w.life.driver.Init(); err != nil {
		w.t.Fatalf("%v", err)
	}
	j, err := journal.Open(&mortalDisk{w.disk, w.life}, "node", fmt.Sprint("boot-", w.boot))
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	w.engine = &Engine{
		Library: &judged{Library: w.life.driver, life: w.life}, Journal: j, Parallel: 1, CallTimeout: 5 * time.Second,
		Pause: func(context.Context, time.Duration) {},
		Now:   func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now },
	}
}

// wait lets machine time pass.
func (w *world) wait(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// inUse is the kubelet's answer.
func (w *world) inUse(context.Context, string) (map[string]Holder, error) {
	w.life.happen()
	if w.question != nil {
		w.question()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deaf != nil {
		return nil, w.deaf
	}
	return maps.Clone(w.pods), nil
}

func (w *world) apply(desired ...v1alpha1.DesiredGPU) Outcome {
	return w.engine.Apply(context.Background(), desired, w.inUse)
}

func (w *world) takeUp() Outcome { return w.engine.Recover(context.Background(), w.inUse) }

// reboot boots the node; the test itself stays connected to the driver.
func (w *world) reboot() {
	w.t.Helper()
	w.sim.Boot()
	if err := w.sim.Init(); err != nil {
		w.t.Fatalf("%v", err)
	}
}

// gives a pod the device.
func (w *world) give(device string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[device] = Holder{Pod: &v1alpha1.PodReference{Namespace: "lab", Name: "train"}}
}

func (w *world) uuid(i int) string {
	w.t.Helper()
	gpus, err := w.sim.GPUs()
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	slices.SortFunc(gpus, func(a, b nvml.GPU) int { return a.Index - b.Index })
	return gpus[i].UUID
}

// there is one instance as the driver has it.
type there struct {
	at     Placement
	device string // "" where there is no compute instance
	id     uint32
	busy   bool
}

// layout is what the driver has on a GPU, the lowest first.
func (w *world) layout(gpu string) []there {
	w.t.Helper()
	w.judging.Add(1)
	defer w.judging.Add(-1)
	found, err := w.sim.Instances(gpu)
	if errors.Is(err, nvml.ErrNotSupported) {
		return nil
	}
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	gpus, _ := w.sim.GPUs()
	at := slices.IndexFunc(gpus, func(g nvml.GPU) bool { return g.UUID == gpu })
	board, _ := mig.BoardOf(gpus[at].PCIDevice)
	processes, _ := w.sim.Processes(gpu)
	var list []there
	for _, it := range found {
		computes, err := w.sim.ComputeInstances(gpu, it.ID)
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		one := there{id: it.ID, at: Placement{Start: it.Placement.Start}}
		for i := range board.Profiles {
			if board.Profiles[i].ID == uint32(it.Profile) {
				one.at.Profile = board.Profiles[i].Name
			}
		}
		if len(computes) == 1 {
			one.device = computes[0].UUID
			w.mu.Lock()
			_, one.busy = w.pods[one.device]
			w.mu.Unlock()
		}
		one.busy = one.busy || slices.ContainsFunc(processes, func(p nvml.Process) bool { return p.Instance == it.ID })
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b there) int { return a.at.Start - b.at.Start })
	return list
}

// mode is the GPU's MIG mode.
func (w *world) mode(gpu string) nvml.Mode {
	w.judging.Add(1)
	defer w.judging.Add(-1)
	mode, _, _ := w.sim.MIGMode(gpu)
	return mode
}

// cutAs is the layout in words; an instance without a device has a question mark.
func (w *world) cutAs(gpu string) string {
	w.t.Helper()
	var list []string
	for _, it := range w.layout(gpu) {
		if it.device == "" {
			list = append(list, it.at.String()+"?")
			continue
		}
		list = append(list, it.at.String())
	}
	return strings.Join(list, " ")
}

// device is the MIG device that begins at that slice.
func (w *world) device(gpu string, start int) string {
	w.t.Helper()
	for _, it := range w.layout(gpu) {
		if it.at.Start == start {
			return it.device
		}
	}
	w.t.Fatalf("no instance at %d", start)
	return ""
}

// foreign makes an instance as somebody else would.
func (w *world) foreign(gpu string, at Placement, half bool) (device string) {
	w.t.Helper()
	gpus, _ := w.sim.GPUs()
	i := slices.IndexFunc(gpus, func(g nvml.GPU) bool { return g.UUID == gpu })
	board, _ := mig.BoardOf(gpus[i].PCIDevice)
	p, err := board.Named(at.Profile)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	made, err := w.sim.CreateInstance(gpu, nvml.ProfileID(p.ID), nvml.Placement{Start: at.Start, Size: p.Memory})
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	if half {
		return ""
	}
	c, err := w.sim.CreateComputeInstance(gpu, made.ID)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	return c.UUID
}

// want is a layout in the planner's words.
func want(gpu string, placements ...Placement) v1alpha1.DesiredGPU {
	return desired(gpu, journal.Layout{MIG: true, Instances: placements})
}

func at(profile v1alpha1.MIGProfile, start int) Placement {
	return Placement{Profile: profile, Start: start}
}

func words(placements []Placement) string {
	sorted := slices.SortedFunc(slices.Values(placements), func(a, b Placement) int { return a.Start - b.Start })
	text := fmt.Sprint(sorted)
	return text[1 : len(text)-1]
}

// must stops the test where something that cannot fail did.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
