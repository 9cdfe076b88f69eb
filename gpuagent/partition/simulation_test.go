// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// failureRecorder records failures from any goroutine.
type failureRecorder struct {
	mu    sync.Mutex
	found []string
}

func (n *failureRecorder) Helper() {}

func (n *failureRecorder) Errorf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found = append(n.found, fmt.Sprintf(format, args...))
}

func (n *failureRecorder) Fatalf(format string, args ...any) { n.Errorf(format, args...) }

// simulation is the history of a node.
type simulation struct {
	*rapid.T
	*testNode
	notes   *failureRecorder
	gpus    []string
	models  []*mig.Model
	desired []v1alpha1.DesiredGPU
	pid     uint32
	// requested are all placements that were ever requested, by GPU.
	requested map[string][]Placement
	over      []func()
}

// TestSimulations: for all events in any order, no instance in use and no foreign instance is
// destroyed, and no write lacks its journal record. Once all faults are over, the GPUs have the
// desired layout and nothing is left over.
func TestSimulations(t *testing.T) {
	for range 4 { // rare events have one in a thousand
		rapid.Check(t, runSimulation)
	}
}

func runSimulation(t *rapid.T) {
	notes := &failureRecorder{}
	h := &simulation{T: t, notes: notes, requested: map[string][]Placement{}, pid: 1000}
	var gpus []simulator.GPU
	for i := range 2 {
		model := rapid.SampledFrom([]string{"A30", "A100-40GB", "H100-80GB", "H200-141GB"}).Draw(t, "model")
		gpus = append(gpus, simulator.GPU{
			Model: model, Mode: nvml.Mode(rapid.IntRange(0, 3).Draw(t, "mode") > 0),
			UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i),
		})
		b, _ := mig.ModelByName(model)
		h.gpus, h.models = append(h.gpus, gpus[i].UUID), append(h.models, b)
		h.desired = append(h.desired, v1alpha1.DesiredGPU{UUID: v1alpha1.GPUUUID(gpus[i].UUID), MIGEnabled: bool(gpus[i].Mode)})
	}
	h.testNode = newTestNode(notes, gpus...)
	t.Repeat(map[string]func(*rapid.T){
		"apply":         h.applyWithEvents,
		"apply again":   h.applyWithEvents,
		"other layout":  h.drawLayout,
		"crash":         h.applyWithCrash,
		"restart":       func(*rapid.T) { h.startEngine(); h.recover() },
		"a pod arrives": func(t *rapid.T) { h.arrive(t, h.assign) },
		"a process arrives": func(t *rapid.T) {
			h.arrive(t, func(device string) { h.pid++; _ = h.sim.Attach(h.pid, device, 1, 1) })
		},
		"all holders leave": func(*rapid.T) { h.releaseAll() },
		"boot":              h.bootNode,
		"a fault":           h.injectFault,
		"faults end":        func(*rapid.T) { h.clearFaults() },
		"a stranger":        h.createForeignInstance,
		"another hand":      h.destroyForeignInstances,
		"time passes":       func(*rapid.T) { h.advanceClock(10 * time.Minute) },
		"":                  h.checkHolders,
	})
	h.requireConverged(t)
}

// drawLayout draws another layout.
func (h *simulation) drawLayout(t *rapid.T) {
	i := rapid.IntRange(0, len(h.gpus)-1).Draw(t, "gpu")
	d := v1alpha1.DesiredGPU{
		UUID: v1alpha1.GPUUUID(h.gpus[i]), MayReset: rapid.Bool().Draw(t, "may reset"),
		MIGEnabled: rapid.IntRange(0, 9).Draw(t, "enabled") > 0,
	}
	if d.MIGEnabled {
		g := mig.GPU{Model: h.models[i]}
		for range rapid.IntRange(0, 7).Draw(t, "instances") {
			p := &h.models[i].Profiles[rapid.IntRange(0, len(h.models[i].Profiles)-1).Draw(t, "profile")]
			with := g
			with.Instances = append(slices.Clone(g.Instances), mig.Instance{Profile: p, Start: rapid.SampledFrom(p.Starts).Draw(t, "start")})
			if with.Check() == nil {
				g = with
			}
		}
		for _, it := range g.Instances {
			d.Instances = append(d.Instances, v1alpha1.DesiredInstance{Profile: it.Profile.Name, Start: int32(it.Start)})
		}
	}
	h.desired[i] = d
}

// applyWithEvents applies the desired layout while events happen.
func (h *simulation) applyWithEvents(t *rapid.T) {
	h.scheduleArrival(t)
	h.applyAll()
}

// applyWithCrash applies the desired layout, ends the process at some point and starts it again.
func (h *simulation) applyWithCrash(t *rapid.T) {
	h.scheduleArrival(t)
	h.life.at = h.life.step + rapid.IntRange(0, 150).Draw(t, "crash after")
	h.applyAll()
	h.startEngine()
	if rapid.Bool().Draw(t, "recover") {
		h.recover()
	}
}

func (h *simulation) applyAll() {
	for _, d := range h.desired {
		gpu := string(d.UUID)
		for _, it := range d.Instances {
			h.requested[gpu] = append(h.requested[gpu], placementAt(it.Profile, int(it.Start)))
		}
		// A requested instance may be adopted, and is Sluice's own if that could be recorded.
		for _, it := range h.readLayout(gpu) {
			if slices.Contains(h.requested[gpu], it.at) && slices.Contains(h.strangers, it.device) {
				h.adoptable = append(h.adoptable, it.device)
				h.strangers = slices.DeleteFunc(h.strangers, func(s string) bool { return s == it.device })
			}
		}
	}
	o := h.apply(h.desired...)
	h.life.event, h.question = nil, nil
	for i, r := range o.Results {
		if i < len(h.desired) && r.State == Applied && !h.life.dead {
			h.requireApplied(h.desired[i])
		}
	}
}

// requireApplied compares a result of Applied with the driver.
func (h *simulation) requireApplied(d v1alpha1.DesiredGPU) {
	gpu := string(d.UUID)
	var wanted []Placement
	for _, it := range d.Instances {
		wanted = append(wanted, placementAt(it.Profile, int(it.Start)))
	}
	var found []Placement
	for _, it := range h.readLayout(gpu) {
		if it.device != "" && slices.Contains(wanted, it.at) {
			found = append(found, it.at)
		} else if slices.ContainsFunc(h.engine.Journal.Instances(gpu),
			func(own OwnedInstance) bool { return own.UUID == it.device && own.ID == it.id }) {
			h.notes.Errorf("%s: reported as applied, but %s is left", gpu, it.at)
		}
	}
	if describePlacements(found) != describePlacements(wanted) {
		h.notes.Errorf("%s: reported as applied: %q, but found %q", gpu, describePlacements(wanted), describePlacements(found))
	}
}

// readLayout reads the layout, without the simulated faults.
func (h *simulation) readLayout(gpu string) []layoutEntry {
	quiet := &testNode{t: &failureRecorder{}, sim: h.sim, pods: h.pods, judging: h.judging}
	return quiet.layout(gpu)
}

// scheduleArrival lets a holder arrive during the next call.
func (h *simulation) scheduleArrival(t *rapid.T) {
	step := h.life.step + rapid.IntRange(0, 150).Draw(t, "calls before a process arrives")
	which := rapid.IntRange(0, 20).Draw(t, "which")
	h.life.event = map[int]func(){step: func() {
		if device := h.nthDevice(which); device != "" {
			h.pid++
			_ = h.sim.Attach(h.pid, device, 1, 1)
		}
	}}
	questions := rapid.IntRange(0, 12).Draw(t, "requests before a pod arrives")
	other := rapid.IntRange(0, 20).Draw(t, "which for the pod")
	h.question = func() {
		if questions--; questions == 0 {
			if device := h.nthDevice(other); device != "" {
				h.assign(device)
			}
		}
	}
}

// nthDevice returns one of the devices; "" for none.
func (h *simulation) nthDevice(n int) string {
	var devices []string
	for _, gpu := range h.gpus {
		for _, it := range h.readLayout(gpu) {
			if it.device != "" {
				devices = append(devices, it.device)
			}
		}
	}
	if len(devices) == 0 || n >= 2*len(devices) {
		return ""
	}
	return devices[n%len(devices)]
}

func (h *simulation) arrive(t *rapid.T, comes func(string)) {
	if device := h.nthDevice(rapid.IntRange(0, 13).Draw(t, "device")); device != "" {
		comes(device)
	}
}

func (h *simulation) releaseAll() {
	h.processes = 0
	for _, pid := range h.sim.PIDs() {
		h.sim.Detach(pid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.pods)
}

func (h *simulation) bootNode(*rapid.T) {
	h.releaseAll()
	h.strangers = nil
	h.judging.Add(1)
	h.reboot()
	h.judging.Add(-1)
	h.boot++
	h.startEngine()
}

func (h *simulation) injectFault(t *rapid.T) {
	f := simulator.Fault{
		Method: rapid.SampledFrom([]string{
			"CreateInstance", "CreateComputeInstance", "DestroyInstance", "DestroyComputeInstance", "SetMIGMode", "Reset", "Instances", "Processes",
			"ComputeInstances", "GPUs", "Placements", "MIGMode", "Profiles",
		}).Draw(t, "method"),
		Err: rapid.SampledFrom([]nvml.Error{
			nvml.ErrInvalidArgument, nvml.ErrNotSupported, nvml.ErrNoPermission, nvml.ErrNotFound, nvml.ErrTimeout, nvml.ErrGPULost,
			nvml.ErrResetRequired,
			nvml.ErrInUse, nvml.ErrInsufficientResources, nvml.ErrNotReady, nvml.ErrInvalidState, nvml.ErrUnknown, nvml.ErrUninitialized,
		}).Draw(t, "error"),
		Skip: rapid.IntRange(0, 5).Draw(t, "skip"), Times: rapid.IntRange(1, 12).Draw(t, "times"), AfterEffect: rapid.Bool().Draw(t, "late"),
	}
	// The checks use the driver, too, and must not fail.
	f.Match = func(simulator.Call) bool { return h.judging.Load() == 0 }
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		h.disk.full = true
	case 1:
		h.deaf = errors.New("connection refused")
	default:
		h.over = append(h.over, h.sim.Fail(f))
	}
}

func (h *simulation) clearFaults() {
	for _, over := range h.over {
		over()
	}
	h.over, h.disk.full, h.deaf = nil, false, nil
}

// createForeignInstance creates an instance that no spec requests.
func (h *simulation) createForeignInstance(t *rapid.T) {
	i := rapid.IntRange(0, len(h.gpus)-1).Draw(t, "gpu")
	p := &h.models[i].Profiles[rapid.IntRange(0, 3).Draw(t, "profile")]
	place := placementAt(p.Name, rapid.SampledFrom(p.Starts).Draw(t, "start"))
	// The unfinished change on the GPU may have requested this instance.
	if change, ok := h.engine.Journal.PendingChange(h.gpus[i]); ok && change.Next.Instance.Placement == place {
		return
	}
	h.judging.Add(1)
	defer h.judging.Add(-1)
	made, err := h.sim.CreateInstance(h.gpus[i], nvml.ProfileID(p.ID), nvml.Placement{Start: place.Start, Size: p.Memory})
	if err != nil {
		return
	}
	c, err := h.sim.CreateComputeInstance(h.gpus[i], made.ID)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if !slices.Contains(h.requested[h.gpus[i]], place) {
		h.strangers = append(h.strangers, c.UUID)
	} else {
		h.adoptable = append(h.adoptable, c.UUID)
	}
}

// destroyForeignInstances destroys unused foreign instances, as an administrator would. Their
// identifiers are free for others.
func (h *simulation) destroyForeignInstances(t *rapid.T) {
	device := h.nthDevice(rapid.IntRange(0, 13).Draw(t, "device"))
	h.judging.Add(1)
	defer h.judging.Add(-1)
	for _, gpu := range h.gpus {
		for _, it := range h.readLayout(gpu) {
			if it.device == device && device != "" && !it.busy && !h.isForeign(device) {
				_ = h.sim.DestroyComputeInstance(gpu, it.id, 0)
				_ = h.sim.DestroyInstance(gpu, it.id)
			}
		}
	}
}

// checkHolders runs after each event: no holder has lost its device.
func (h *simulation) checkHolders(t *rapid.T) {
	var devices []string
	for _, gpu := range h.gpus {
		for _, it := range h.readLayout(gpu) {
			devices = append(devices, it.device)
		}
	}
	for device := range h.pods {
		if !slices.Contains(devices, device) {
			h.notes.Errorf("%s was destroyed under a pod", device)
		}
	}
	for _, device := range h.strangers {
		if !slices.Contains(devices, device) {
			h.notes.Errorf("the foreign %s was destroyed", device)
		}
	}
	if alive := len(h.sim.PIDs()); alive < h.processes {
		h.notes.Errorf("of %d processes only %d are left", h.processes, alive)
	}
	h.processes = len(h.sim.PIDs())
	h.notes.mu.Lock()
	defer h.notes.mu.Unlock()
	if len(h.notes.found) > 0 {
		t.Fatalf("%s", strings.Join(h.notes.found, "\n"))
	}
}

// requireConverged ends all faults and compares the result with the spec.
func (h *simulation) requireConverged(t *rapid.T) {
	h.clearFaults()
	h.releaseAll()
	h.advanceClock(time.Hour)
	h.startEngine()
	h.recover()
	for i := range h.desired {
		h.desired[i].MayReset = true
	}
	h.applyAll()
	o := h.apply(h.desired...)
	for i, r := range o.Results {
		if r.State != Applied && (r.State != Invalid || !strings.Contains(r.Message, "not Sluice's")) {
			h.notes.Errorf("in the end %s is %s: %s", r.GPU, r.State, r.Message)
		}
		if r.State == Applied {
			h.requireApplied(h.desired[i])
		}
		h.checkAfterCrash(h.gpus[i], nil, "in the end")
	}
	h.checkHolders(t)
}
