// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// scenario is a GPU with its current and desired layout.
type scenario struct {
	name  string
	gpu   simulator.GPU
	start []Placement
	// pods and processes are the starts of the instances in use.
	pods, processes []int
	foreign         []Placement
	desired         v1alpha1.DesiredGPU
	fault           *simulator.Fault
	// ends is the layout after an undisturbed change; "" means the desired one.
	ends string
}

func gpuInMIGMode(model string) simulator.GPU { return simulator.GPU{Model: model, Mode: nvml.Enabled} }

func gpuNotInMIGMode(model string) simulator.GPU { return simulator.GPU{Model: model} }

var scenarios = []scenario{
	{
		name: "the first partition", gpu: gpuInMIGMode("H100-80GB"),
		desired: newDesiredGPU("", placementAt("4g.40gb", 0), placementAt("3g.40gb", 4)),
	},
	{
		name: "seven small ones", gpu: gpuInMIGMode("A100-40GB"),
		desired: newDesiredGPU("", placementAt("1g.5gb", 0), placementAt("1g.5gb", 1), placementAt("1g.5gb", 2), placementAt("1g.5gb", 3),
			placementAt("1g.5gb", 4), placementAt("1g.5gb", 5), placementAt("1g.5gb", 6)),
	},
	{
		name: "small ones become large ones", gpu: gpuInMIGMode("A100-40GB"),
		start:   []Placement{placementAt("1g.5gb", 0), placementAt("1g.5gb", 1), placementAt("2g.10gb", 2), placementAt("3g.20gb", 4)},
		desired: newDesiredGPU("", placementAt("4g.20gb", 0), placementAt("3g.20gb", 4)),
	},
	{
		name: "a large one becomes small ones", gpu: gpuInMIGMode("H100-80GB"),
		start:   []Placement{placementAt("7g.80gb", 0)},
		desired: newDesiredGPU("", placementAt("3g.40gb", 4), placementAt("1g.10gb", 0), placementAt("1g.20gb", 2)),
	},
	{
		name: "beside a pod", gpu: gpuInMIGMode("A100-80GB"),
		start:   []Placement{placementAt("3g.40gb", 4), placementAt("2g.20gb", 0), placementAt("2g.20gb", 2)},
		pods:    []int{4},
		desired: newDesiredGPU("", placementAt("3g.40gb", 4), placementAt("4g.40gb", 0)),
	},
	{
		name: "a pod in the way", gpu: gpuInMIGMode("A100-80GB"),
		start:   []Placement{placementAt("3g.40gb", 4), placementAt("2g.20gb", 0), placementAt("2g.20gb", 2)},
		pods:    []int{2},
		desired: newDesiredGPU("", placementAt("3g.40gb", 4), placementAt("4g.40gb", 0)),
		ends:    "2g.20gb@0 2g.20gb@2 3g.40gb@4",
	},
	{
		name: "a process in the way", gpu: gpuInMIGMode("A30"),
		start:     []Placement{placementAt("2g.12gb", 0), placementAt("1g.6gb", 2), placementAt("1g.6gb", 3)},
		processes: []int{3},
		desired:   newDesiredGPU("", placementAt("2g.12gb", 0), placementAt("2g.12gb", 2)),
		ends:      "2g.12gb@0 1g.6gb@2 1g.6gb@3",
	},
	{
		name: "an A30", gpu: gpuInMIGMode("A30"),
		start:   []Placement{placementAt("4g.24gb", 0)},
		desired: newDesiredGPU("", placementAt("2g.12gb", 0), placementAt("1g.6gb+me", 2), placementAt("1g.6gb", 3)),
	},
	{
		name: "nothing is to be left", gpu: gpuInMIGMode("A30"),
		start:   []Placement{placementAt("1g.6gb", 0), placementAt("2g.12gb", 2)},
		desired: newDesiredGPU(""),
	},
	{
		name: "something foreign beside", gpu: gpuInMIGMode("H100-80GB"),
		start:   []Placement{placementAt("3g.40gb", 0)},
		foreign: []Placement{placementAt("1g.10gb", 6)},
		desired: newDesiredGPU("", placementAt("2g.20gb", 0), placementAt("2g.20gb", 2)),
		ends:    "2g.20gb@0 2g.20gb@2 1g.10gb@6",
	},
	{
		name: "something foreign in the way", gpu: gpuInMIGMode("H100-80GB"),
		start:   []Placement{placementAt("3g.40gb", 0)},
		foreign: []Placement{placementAt("1g.10gb", 6)},
		desired: newDesiredGPU("", placementAt("4g.40gb", 0), placementAt("3g.40gb", 4)),
		ends:    "3g.40gb@0 1g.10gb@6",
	},
	{
		name: "a foreign instance matches the spec", gpu: gpuInMIGMode("H100-80GB"),
		start:   []Placement{placementAt("3g.40gb", 0)},
		foreign: []Placement{placementAt("3g.40gb", 4)},
		desired: newDesiredGPU("", placementAt("2g.20gb", 2), placementAt("3g.40gb", 4)),
	},
	{
		name: "MIG mode is enabled", gpu: gpuNotInMIGMode("H100-80GB"),
		desired: newDesiredGPU("", placementAt("4g.40gb", 0), placementAt("1g.20gb", 6)),
	},
	{
		name: "MIG mode is left", gpu: gpuInMIGMode("H100-80GB"),
		start:   []Placement{placementAt("4g.40gb", 0), placementAt("1g.20gb", 6)},
		desired: v1alpha1.DesiredGPU{},
	},
	{
		name: "MIG mode is enabled with a reset", gpu: gpuNotInMIGMode("A100-40GB"),
		desired: v1alpha1.DesiredGPU{MIGEnabled: true, MayReset: true, Instances: []v1alpha1.DesiredInstance{{Profile: "3g.20gb", Start: 4}}},
	},
	{
		name: "MIG mode is enabled, and no reset allowed", gpu: gpuNotInMIGMode("A100-40GB"),
		desired: newDesiredGPU("", placementAt("3g.20gb", 4)), ends: "whole",
	},
	{
		name: "MIG mode is left with a reset", gpu: gpuInMIGMode("A30"),
		start:   []Placement{placementAt("2g.12gb", 2)},
		desired: v1alpha1.DesiredGPU{MayReset: true},
	},
	{
		name: "a GPU that refuses", gpu: gpuInMIGMode("A100-40GB"),
		start: []Placement{placementAt("1g.5gb", 0), placementAt("2g.10gb", 2), placementAt("3g.20gb", 4)},
		fault: &simulator.Fault{
			Method: "CreateInstance", Err: nvml.ErrInsufficientResources,
			Match: func(c simulator.Call) bool { return c.At.Size == 4 && c.At.Start == 0 },
		},
		desired: newDesiredGPU("", placementAt("4g.20gb", 0), placementAt("2g.10gb", 4)),
		ends:    "1g.5gb@0 2g.10gb@2 3g.20gb@4",
	},
	{
		name: "a GPU that refuses devices", gpu: gpuInMIGMode("A30"),
		start:   []Placement{placementAt("2g.12gb", 0), placementAt("1g.6gb", 2)},
		fault:   &simulator.Fault{Method: "CreateComputeInstance", Skip: 2, Times: 1, Err: nvml.ErrInvalidArgument},
		desired: newDesiredGPU("", placementAt("1g.6gb", 0), placementAt("1g.6gb", 1), placementAt("1g.6gb", 3)),
		ends:    "either",
	},
	{
		name: "MIG mode is left, and no reset allowed", gpu: gpuInMIGMode("A30"),
		start:   []Placement{placementAt("2g.12gb", 2)},
		desired: v1alpha1.DesiredGPU{}, ends: "2g.12gb@2",
	},
}

// setUp builds the scenario; the engine itself creates its instances.
func (s *scenario) setUp(t *testing.T) (w *testNode, gpu string) {
	t.Helper()
	w = newTestNode(t, s.gpu)
	gpu = w.uuid(0)
	if len(s.start) > 0 {
		if o := w.apply(newDesiredGPU(gpu, s.start...)); o.Results[0].State != Applied {
			t.Fatalf("the start: %+v", o.Results)
		}
	}
	for _, it := range s.foreign {
		device := w.createForeign(gpu, it, false)
		if !slices.ContainsFunc(s.desired.Instances,
			func(d v1alpha1.DesiredInstance) bool { return int(d.Start) == it.Start && d.Profile == it.Profile }) {
			w.strangers = append(w.strangers, device)
		} else {
			w.adoptable = append(w.adoptable, device)
		}
	}
	for _, start := range s.pods {
		w.assign(w.device(gpu, start))
	}
	for i, start := range s.processes {
		requireNoError(t, w.sim.Attach(uint32(100+i), w.device(gpu, start), 100, 50))
	}
	s.injectFault(w)
	w.startEngine() // another life, whose points count from 0
	return w, gpu
}

// injectFault makes the driver return the scenario's fault. The test node counts the calls, because a snapshot does not.
func (s *scenario) injectFault(w *testNode) {
	if s.fault == nil {
		return
	}
	f := *s.fault
	f.Skip, f.Times = 0, 0
	f.Match = func(c simulator.Call) bool {
		if s.fault.Match != nil && !s.fault.Match(c) {
			return false
		}
		w.faultCalls++
		return w.faultCalls > s.fault.Skip && (s.fault.Times == 0 || w.faultCalls <= s.fault.Skip+s.fault.Times)
	}
	w.sim.Fail(f)
}

// nodeState is what a process leaves behind: the next one depends on nothing else.
type nodeState struct {
	driver, disk string
	faultCalls   int
}

func (w *testNode) state(t *testing.T) nodeState {
	t.Helper()
	driver, err := w.sim.Snapshot()
	requireNoError(t, err)
	return nodeState{string(driver), string(w.disk.content), w.faultCalls}
}

// resume returns a node with the pods of another one, in the given state, with a new process.
func (s *scenario) resume(t *testing.T, template *testNode, state nodeState) *testNode {
	t.Helper()
	w := newTestNode(t, s.gpu)
	requireNoError(t, w.sim.Restore([]byte(state.driver)))
	if w.disk = (&memoryStore{}); state.disk != "" {
		w.disk.content = []byte(state.disk)
	}
	w.pods, w.strangers, w.adoptable = maps.Clone(template.pods), template.strangers, template.adoptable
	w.faultCalls = state.faultCalls
	s.injectFault(w)
	w.startEngine()
	return w
}

// describeGPU describes a GPU in words.
func (w *testNode) describeGPU(gpu string) string {
	if w.mode(gpu) == nvml.Disabled {
		return "whole"
	}
	return w.describeLayout(gpu)
}

func (s *scenario) describeDesired() string {
	if !s.desired.MIGEnabled {
		return "whole"
	}
	var all []Placement
	for _, it := range s.desired.Instances {
		all = append(all, placementAt(it.Profile, int(it.Start)))
	}
	return describePlacements(all)
}

// isAllowedEnd reports whether the scenario may end so. A temporary fault leads to either layout.
func (s *scenario) isAllowedEnd(got, ends string) bool {
	return got == ends || ends == "either" && (got == s.describeDesired() || got == describePlacements(s.start))
}

// TestCrashAtEachPoint ends the process before and after the effect of each driver call, each disk
// write and each request to the kubelet, ends the recovering process at each of its points, too, and starts
// it again. Processes that leave the same state behind are one case.
func TestCrashAtEachPoint(t *testing.T) {
	var points, secondPoints, states atomic.Int32
	t.Run("scenarios", func(t *testing.T) {
		for i := range scenarios {
			t.Run(scenarios[i].name, func(t *testing.T) {
				t.Parallel()
				c := newCrashes(t, &scenarios[i])
				c.checkAll(t)
				points.Add(c.points)
				secondPoints.Add(c.secondPoints)
				states.Add(int32(len(c.checked))) //nolint:gosec // small
			})
		}
	})
	t.Logf("%d crash points, %d second ones in the recovery; %d states, each with idle and with held instances afterwards",
		points.Load(), secondPoints.Load(), states.Load())
	if points.Load() < 1000 || secondPoints.Load() < 1000 {
		t.Error("only few crash points")
	}
}

// crashes are the crashes of a scenario.
type crashes struct {
	*scenario
	template *testNode
	gpu      string
	start    nodeState
	ends     string
	// undisturbed is the number of points of an undisturbed change.
	undisturbed          int
	points, secondPoints int32
	checked              map[nodeState]bool
}

// newCrashes sets up the scenario, and checks the undisturbed change.
func newCrashes(t *testing.T, s *scenario) *crashes {
	t.Helper()
	w, gpu := s.setUp(t)
	s.desired.UUID = v1alpha1.GPUUUID(gpu)
	c := &crashes{scenario: s, template: w, gpu: gpu, start: w.state(t), ends: cmp.Or(s.ends, s.describeDesired()), checked: map[nodeState]bool{}}
	o := w.apply(s.desired)
	if got := w.describeGPU(gpu); !s.isAllowedEnd(got, c.ends) {
		t.Fatalf("undisturbed it ends as %q, want %q: %+v", got, c.ends, o.Results)
	}
	c.undisturbed = w.life.step
	writes := w.life.wrote
	if again := w.apply(s.desired); len(w.life.wrote) != len(writes) || again.Changed {
		t.Errorf("the second time it writes %v", w.life.wrote[len(writes):])
	}
	return c
}

// checkAll crashes at each point, and in the recovery from each new state at each of its points.
func (c *crashes) checkAll(t *testing.T) {
	t.Helper()
	interrupted := map[nodeState]bool{} // the states whose recovery was interrupted at each point
	for point := range c.undisturbed {
		c.points++
		w := c.resume(t, c.template, c.start)
		w.life.at = point
		w.apply(c.desired)
		state := w.state(t)
		if interrupted[state] {
			continue
		}
		interrupted[state] = true
		c.checkRecovery(t, state, fmt.Sprintf("a crash at point %d of %d", point, c.undisturbed))
		for second := 0; ; second++ {
			w := c.resume(t, c.template, state)
			w.life.at = second
			if w.recover(); !w.life.dead {
				break
			}
			c.secondPoints++
			c.checkRecovery(t, w.state(t), fmt.Sprintf("crashes at points %d and %d", point, second))
		}
	}
}

// checkRecovery checks the recovery from a state, and the change that follows, unless it did so before.
func (c *crashes) checkRecovery(t *testing.T, state nodeState, after string) {
	t.Helper()
	if c.checked[state] {
		return
	}
	c.checked[state] = true
	for _, grabbed := range []bool{false, true} {
		w := c.resume(t, c.template, state)
		former := w.describeGPU(c.gpu)
		held := w.heldDevices(c.gpu)
		if grabbed {
			held = w.assignAll(c.gpu)
		}
		w.recover()
		w.checkAfterCrash(c.gpu, held, "recovered from "+after)
		o := w.apply(c.desired)
		w.checkAfterCrash(c.gpu, held, fmt.Sprintf("after %s, grabbed %v", after, grabbed))
		if got := w.describeGPU(c.gpu); !grabbed && !c.isAllowedEnd(got, c.ends) {
			t.Errorf("after %s it ends as %q, want %q (before it was %q): %+v", after, got, c.ends, former, o.Results)
		}
	}
}

// heldDevices returns the devices in use.
func (w *testNode) heldDevices(gpu string) (held []string) {
	for _, it := range w.layout(gpu) {
		if it.busy {
			held = append(held, it.device)
		}
	}
	return held
}

// assignAll assigns each device to a pod.
func (w *testNode) assignAll(gpu string) (held []string) {
	for _, it := range w.layout(gpu) {
		if it.device != "" {
			w.assign(it.device)
			held = append(held, it.device)
		}
	}
	return held
}

// checkAfterCrash checks what holds while no change is in progress: devices in use still exist, no
// instance is incomplete, and none lacks an owner.
func (w *testNode) checkAfterCrash(gpu string, held []string, when string) {
	w.t.Helper()
	var devices []string
	known := w.engine.Journal.Instances(gpu)
	for _, it := range w.layout(gpu) {
		devices = append(devices, it.device)
		if it.device == "" {
			w.t.Errorf("%s: %s has no compute instance", when, it.at)
		}
		owned := false
		for _, own := range known {
			owned = owned || own.UUID == it.device && own.ID == it.id && own.Placement == it.at
		}
		if !owned && !w.isForeign(it.device) && !slices.Contains(w.adoptable, it.device) {
			w.t.Errorf("%s: %s is leaked: the journal does not know it but %v", when, it.at, known)
		}
	}
	for _, device := range held {
		if !slices.Contains(devices, device) {
			w.t.Errorf("%s: %s was in use and was destroyed", when, device)
		}
	}
	if open := w.engine.Journal.PendingGPUs(); len(open) > 0 {
		w.t.Errorf("%s: something is still under way on %v", when, open)
	}
}
