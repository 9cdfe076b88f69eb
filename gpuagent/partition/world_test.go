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
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// reporter is the part of a test that the test node needs.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// testNode is a node with its disk and its kubelet. It checks each call.
type testNode struct {
	t    reporter
	sim  *simulator.Node
	disk *memoryStore
	boot int

	mu        sync.Mutex
	pods      map[string]Holder // by device
	deaf      error             // the kubelet's error
	question  func()            // runs at each request
	judging   *atomic.Int32     // whether the test itself calls the driver
	processes int               // their number
	now       time.Time

	faultCalls int // the driver calls that matched a scenario's fault

	strangers []string // devices that must not change
	adoptable []string // foreign devices that the spec requests
	engine    *Engine
	life      *processLife
}

// memoryStore is a journal's store in memory.
type memoryStore struct {
	mu      sync.Mutex
	content []byte
	full    bool
	writes  int
}

func (d *memoryStore) Load() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.content == nil {
		return nil, fs.ErrNotExist
	}
	return bytes.Clone(d.content), nil
}

func (d *memoryStore) Replace(content []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return syscall.ENOSPC
	}
	d.content = bytes.Clone(content)
	d.writes++
	return nil
}

func (d *memoryStore) SetAside() (string, error) { return "journal.unbelieved", nil }

func newTestNode(t reporter, gpus ...simulator.GPU) *testNode {
	t.Helper()
	return newTestNodeWith(t, simulator.Config{GPUs: gpus})
}

func newTestNodeWith(t reporter, config simulator.Config) *testNode {
	t.Helper()
	config.Seed, config.Order = "node", simulator.NoOrder
	sim, err := simulator.New(config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := &testNode{
		t: t, sim: sim, disk: &memoryStore{}, boot: 1, judging: &atomic.Int32{}, pods: map[string]Holder{},
		now: time.Unix(1_800_000_000, 0),
	}
	if err := sim.Init(); err != nil {
		t.Fatalf("%v", err)
	}
	w.startEngine()
	return w
}

// startEngine starts a new process of the agent after the former one ended.
func (w *testNode) startEngine() {
	w.t.Helper()
	if w.life != nil {
		w.life.kill()
	}
	w.life = &processLife{node: w, at: -1, driver: w.sim.Open()}
	if err := w.life.driver.Init(); err != nil {
		w.t.Fatalf("%v", err)
	}
	j, err := OpenJournal(&crashingStore{w.disk, w.life}, "node", fmt.Sprint("boot-", w.boot))
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	w.engine = &Engine{
		Library: &checkingLibrary{Library: w.life.driver, life: w.life}, Journal: j, Concurrency: 1, CallTimeout: 5 * time.Minute,
		Sleep: func(context.Context, time.Duration) {},
		Now:   func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now },
	}
}

// setDriverLoad reports a load of the driver to the engine, as the agent does when it connects.
func (w *testNode) setDriverLoad(load string) {
	w.t.Helper()
	if _, err := w.engine.SetDriverLoad(load); err != nil {
		w.t.Fatalf("%v", err)
	}
}

// advanceClock advances machine time.
func (w *testNode) advanceClock(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// inUse returns the kubelet's answer.
func (w *testNode) inUse(context.Context, string) (map[string]Holder, error) {
	w.life.advance()
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

func (w *testNode) apply(desired ...v1alpha1.DesiredGPU) Outcome {
	return w.engine.Apply(context.Background(), desired, w.inUse)
}

func (w *testNode) recover() Outcome { return w.engine.Recover(context.Background(), w.inUse) }

// reboot reboots the node; the test itself stays connected to the driver.
func (w *testNode) reboot() {
	w.t.Helper()
	w.sim.Boot()
	if err := w.sim.Init(); err != nil {
		w.t.Fatalf("%v", err)
	}
}

// assign assigns the device to a pod.
func (w *testNode) assign(device string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[device] = Holder{Pod: &v1alpha1.PodReference{Namespace: "lab", Name: "train"}}
}

func (w *testNode) uuid(i int) string {
	w.t.Helper()
	gpus, err := w.sim.GPUs()
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	slices.SortFunc(gpus, func(a, b nvml.GPU) int { return a.Index - b.Index })
	return gpus[i].UUID
}

// layoutEntry is one instance as the driver reports it.
type layoutEntry struct {
	at     Placement
	device string // "" without a compute instance
	id     uint32
	busy   bool
}

// readLayout returns the driver's instances on a GPU, the lowest first.
func (w *testNode) layout(gpu string) []layoutEntry {
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
	model, _ := mig.ModelByPCIDevice(gpus[at].PCIDevice)
	processes, _ := w.sim.Processes(gpu)
	var list []layoutEntry
	for _, it := range found {
		computes, err := w.sim.ComputeInstances(gpu, it.ID)
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		one := layoutEntry{id: it.ID, at: Placement{Start: it.Placement.Start}}
		for i := range model.Profiles {
			if model.Profiles[i].ID == uint32(it.Profile) {
				one.at.Profile = model.Profiles[i].Name
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
	slices.SortFunc(list, func(a, b layoutEntry) int { return a.at.Start - b.at.Start })
	return list
}

// mode returns the GPU's MIG mode.
func (w *testNode) mode(gpu string) nvml.Mode {
	w.judging.Add(1)
	defer w.judging.Add(-1)
	mode, _, _ := w.sim.MIGMode(gpu)
	return mode
}

// describeLayout describes the layout in words; an instance without a device has a question mark.
func (w *testNode) describeLayout(gpu string) string {
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

// device returns the MIG device that starts at a slice.
func (w *testNode) device(gpu string, start int) string {
	w.t.Helper()
	for _, it := range w.layout(gpu) {
		if it.at.Start == start {
			return it.device
		}
	}
	w.t.Fatalf("no instance at %d", start)
	return ""
}

// createForeign creates an instance as another program would.
func (w *testNode) createForeign(gpu string, at Placement, half bool) (device string) {
	w.t.Helper()
	gpus, _ := w.sim.GPUs()
	i := slices.IndexFunc(gpus, func(g nvml.GPU) bool { return g.UUID == gpu })
	model, _ := mig.ModelByPCIDevice(gpus[i].PCIDevice)
	p, err := model.Profile(at.Profile)
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

// newDesiredGPU returns a layout as the planner writes it.
func newDesiredGPU(gpu string, placements ...Placement) v1alpha1.DesiredGPU {
	return toDesiredGPU(gpu, Layout{MIG: true, Instances: placements})
}

func placementAt(profile v1alpha1.MIGProfile, start int) Placement {
	return Placement{Profile: profile, Start: start}
}

func describePlacements(placements []Placement) string {
	sorted := slices.SortedFunc(slices.Values(placements), func(a, b Placement) int { return a.Start - b.Start })
	text := fmt.Sprint(sorted)
	return text[1 : len(text)-1]
}

// requireNoError ends the test after an unexpected error.
func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
