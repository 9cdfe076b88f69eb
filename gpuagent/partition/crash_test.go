// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"cmp"
	"fmt"
	"slices"
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
	if s.fault != nil {
		w.sim.Fail(*s.fault)
	}
	w.startEngine() // another life, whose points count from 0
	return w, gpu
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
// write and each request to the kubelet, and starts it again.
func TestCrashAtEachPoint(t *testing.T) {
	points, twice := 0, 0
	for i := range scenarios {
		s := &scenarios[i]
		t.Run(s.name, func(t *testing.T) {
			ends := cmp.Or(s.ends, s.describeDesired())
			w, gpu := s.setUp(t)
			s.desired.UUID = v1alpha1.GPUUUID(gpu)
			former := w.describeGPU(gpu)
			o := w.apply(s.desired)
			if got := w.describeGPU(gpu); !s.isAllowedEnd(got, ends) {
				t.Fatalf("undisturbed it ends as %q, want %q: %+v", got, ends, o.Results)
			}
			n := w.life.step
			writes := w.life.wrote
			if again := w.apply(s.desired); len(w.life.wrote) != len(writes) || again.Changed {
				t.Errorf("the second time it writes %v", w.life.wrote[len(writes):])
			}
			for point := range n {
				points++
				for _, grabbed := range []bool{false, true} {
					w, gpu := s.setUp(t)
					w.life.at = point
					w.apply(s.desired)
					w.startEngine()
					held := w.heldDevices(gpu)
					if grabbed {
						held = w.assignAll(gpu)
					}
					w.recover()
					w.checkAfterCrash(gpu, held, fmt.Sprintf("point %d, recovered", point))
					o := w.apply(s.desired)
					w.checkAfterCrash(gpu, held, fmt.Sprintf("point %d, grabbed %v", point, grabbed))
					if got := w.describeGPU(gpu); !grabbed && !s.isAllowedEnd(got, ends) {
						t.Errorf("after a crash at point %d of %d it ends as %q, want %q (before it was %q): %+v", point, n, got, ends, former, o.Results)
					}
				}
				if point%9 == i%9 {
					twice += s.crashTwice(t, point, ends)
				}
			}
		})
	}
	t.Logf("%d crash points, each with idle and with held instances afterwards, and %d second crashes in the recovery", points, twice)
	if points < 1000 {
		t.Errorf("only %d crash points", points)
	}
}

// crashTwice also ends the recovering process at each of its points.
func (s *scenario) crashTwice(t *testing.T, point int, ends string) (count int) {
	for second := 0; ; second += 4 {
		w, gpu := s.setUp(t)
		w.life.at = point
		w.apply(s.desired)
		w.startEngine()
		w.life.at = second
		w.recover()
		if !w.life.dead {
			return count
		}
		count++
		w.startEngine()
		held := w.heldDevices(gpu)
		w.recover()
		o := w.apply(s.desired)
		w.checkAfterCrash(gpu, held, fmt.Sprintf("points %d and %d", point, second))
		if got := w.describeGPU(gpu); !s.isAllowedEnd(got, ends) {
			t.Errorf("after crashes at points %d and %d it ends as %q, want %q: %+v", point, second, got, ends, o.Results)
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
