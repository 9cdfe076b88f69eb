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

// scenario is a GPU as it is, and as it shall be.
type scenario struct {
	name  string
	gpu   simulator.GPU
	start []Placement
	// pods and processes are the slices at which instances begin that are in use.
	pods, processes []int
	foreign         []Placement
	want            v1alpha1.DesiredGPU
	fault           *simulator.Fault
	// ends is the layout to which an undisturbed change leads; "" means the one wanted.
	ends string
}

func on(board string) simulator.GPU { return simulator.GPU{Board: board, Mode: nvml.Enabled} }

func off(board string) simulator.GPU { return simulator.GPU{Board: board} }

var scenarios = []scenario{
	{
		name: "the first cut", gpu: on("H100-80GB"),
		want: want("", at("4g.40gb", 0), at("3g.40gb", 4)),
	},
	{
		name: "seven small ones", gpu: on("A100-40GB"),
		want: want("", at("1g.5gb", 0), at("1g.5gb", 1), at("1g.5gb", 2), at("1g.5gb", 3), at("1g.5gb", 4), at("1g.5gb", 5), at("1g.5gb", 6)),
	},
	{
		name: "small ones become large ones", gpu: on("A100-40GB"),
		start: []Placement{at("1g.5gb", 0), at("1g.5gb", 1), at("2g.10gb", 2), at("3g.20gb", 4)},
		want:  want("", at("4g.20gb", 0), at("3g.20gb", 4)),
	},
	{
		name: "a large one becomes small ones", gpu: on("H100-80GB"),
		start: []Placement{at("7g.80gb", 0)},
		want:  want("", at("3g.40gb", 4), at("1g.10gb", 0), at("1g.20gb", 2)),
	},
	{
		name: "beside a pod", gpu: on("A100-80GB"),
		start: []Placement{at("3g.40gb", 4), at("2g.20gb", 0), at("2g.20gb", 2)},
		pods:  []int{4},
		want:  want("", at("3g.40gb", 4), at("4g.40gb", 0)),
	},
	{
		name: "a pod in the way", gpu: on("A100-80GB"),
		start: []Placement{at("3g.40gb", 4), at("2g.20gb", 0), at("2g.20gb", 2)},
		pods:  []int{2},
		want:  want("", at("3g.40gb", 4), at("4g.40gb", 0)),
		ends:  "2g.20gb@0 2g.20gb@2 3g.40gb@4",
	},
	{
		name: "a process in the way", gpu: on("A30"),
		start:     []Placement{at("2g.12gb", 0), at("1g.6gb", 2), at("1g.6gb", 3)},
		processes: []int{3},
		want:      want("", at("2g.12gb", 0), at("2g.12gb", 2)),
		ends:      "2g.12gb@0 1g.6gb@2 1g.6gb@3",
	},
	{
		name: "an A30", gpu: on("A30"),
		start: []Placement{at("4g.24gb", 0)},
		want:  want("", at("2g.12gb", 0), at("1g.6gb+me", 2), at("1g.6gb", 3)),
	},
	{
		name: "nothing is to be left", gpu: on("A30"),
		start: []Placement{at("1g.6gb", 0), at("2g.12gb", 2)},
		want:  want(""),
	},
	{
		name: "something foreign beside", gpu: on("H100-80GB"),
		start:   []Placement{at("3g.40gb", 0)},
		foreign: []Placement{at("1g.10gb", 6)},
		want:    want("", at("2g.20gb", 0), at("2g.20gb", 2)),
		ends:    "2g.20gb@0 2g.20gb@2 1g.10gb@6",
	},
	{
		name: "something foreign in the way", gpu: on("H100-80GB"),
		start:   []Placement{at("3g.40gb", 0)},
		foreign: []Placement{at("1g.10gb", 6)},
		want:    want("", at("4g.40gb", 0), at("3g.40gb", 4)),
		ends:    "3g.40gb@0 1g.10gb@6",
	},
	{
		name: "something foreign is just what is wanted", gpu: on("H100-80GB"),
		start:   []Placement{at("3g.40gb", 0)},
		foreign: []Placement{at("3g.40gb", 4)},
		want:    want("", at("2g.20gb", 2), at("3g.40gb", 4)),
	},
	{
		name: "MIG mode is enabled", gpu: off("H100-80GB"),
		want: want("", at("4g.40gb", 0), at("1g.20gb", 6)),
	},
	{
		name: "MIG mode is left", gpu: on("H100-80GB"),
		start: []Placement{at("4g.40gb", 0), at("1g.20gb", 6)},
		want:  v1alpha1.DesiredGPU{},
	},
	{
		name: "MIG mode is enabled with a reset", gpu: off("A100-40GB"),
		want: v1alpha1.DesiredGPU{MIGEnabled: true, MayReset: true, Instances: []v1alpha1.DesiredInstance{{Profile: "3g.20gb", Start: 4}}},
	},
	{
		name: "MIG mode is enabled, and no reset allowed", gpu: off("A100-40GB"),
		want: want("", at("3g.20gb", 4)), ends: "whole",
	},
	{
		name: "MIG mode is left with a reset", gpu: on("A30"),
		start: []Placement{at("2g.12gb", 2)},
		want:  v1alpha1.DesiredGPU{MayReset: true},
	},
	{
		name: "a board that refuses", gpu: on("A100-40GB"),
		start: []Placement{at("1g.5gb", 0), at("2g.10gb", 2), at("3g.20gb", 4)},
		fault: &simulator.Fault{Method: "CreateInstance", Err: nvml.ErrInsufficientResources, Match: func(c simulator.Call) bool { return c.At.Size == 4 && c.At.Start == 0 }},
		want:  want("", at("4g.20gb", 0), at("2g.10gb", 4)),
		ends:  "1g.5gb@0 2g.10gb@2 3g.20gb@4",
	},
	{
		name: "a board that refuses devices", gpu: on("A30"),
		start: []Placement{at("2g.12gb", 0), at("1g.6gb", 2)},
		fault: &simulator.Fault{Method: "CreateComputeInstance", Skip: 2, Times: 1, Err: nvml.ErrInvalidArgument},
		want:  want("", at("1g.6gb", 0), at("1g.6gb", 1), at("1g.6gb", 3)),
		ends:  "either",
	},
	{
		name: "MIG mode is left, and no reset allowed", gpu: on("A30"),
		start: []Placement{at("2g.12gb", 2)},
		want:  v1alpha1.DesiredGPU{}, ends: "2g.12gb@2",
	},
}

// set builds the scenario; its instances are Sluice's own, made by Sluice.
func (s *scenario) set(t *testing.T) (w *world, gpu string) {
	t.Helper()
	w = newWorld(t, s.gpu)
	gpu = w.uuid(0)
	if len(s.start) > 0 {
		if o := w.apply(want(gpu, s.start...)); o.Results[0].State != Applied {
			t.Fatalf("the start: %+v", o.Results)
		}
	}
	for _, it := range s.foreign {
		device := w.foreign(gpu, it, false)
		if !slices.ContainsFunc(s.want.Instances, func(d v1alpha1.DesiredInstance) bool { return int(d.Start) == it.Start && d.Profile == it.Profile }) {
			w.strangers = append(w.strangers, device)
		} else {
			w.adoptable = append(w.adoptable, device)
		}
	}
	for _, start := range s.pods {
		w.give(w.device(gpu, start))
	}
	for i, start := range s.processes {
		must(t, w.sim.Attach(uint32(100+i), w.device(gpu, start), 100, 50))
	}
	if s.fault != nil {
		w.sim.Fail(*s.fault)
	}
	w.start() // another life, in which points are counted from 0
	return w, gpu
}

// now is the GPU in words.
func (w *world) nowOn(gpu string) string {
	if w.mode(gpu) == nvml.Disabled {
		return "whole"
	}
	return w.cutAs(gpu)
}

func (s *scenario) wants() string {
	if !s.want.MIGEnabled {
		return "whole"
	}
	var all []Placement
	for _, it := range s.want.Instances {
		all = append(all, at(it.Profile, int(it.Start)))
	}
	return words(all)
}

// mayEnd tells whether the scenario may end so. A fault that passes leads to either.
func (s *scenario) mayEnd(got, ends string) bool {
	return got == ends || ends == "either" && (got == s.wants() || got == words(s.start))
}

// TestACrashAnywhere ends the process before and after the effect of each call to the
// driver, each write to the disk, and each question to the kubelet, and starts it again.
func TestACrashAnywhere(t *testing.T) {
	points, twice := 0, 0
	for i := range scenarios {
		s := &scenarios[i]
		t.Run(s.name, func(t *testing.T) {
			ends := cmp.Or(s.ends, s.wants())
			w, gpu := s.set(t)
			s.want.UUID = v1alpha1.GPUUUID(gpu)
			former := w.nowOn(gpu)
			o := w.apply(s.want)
			if got := w.nowOn(gpu); !s.mayEnd(got, ends) {
				t.Fatalf("undisturbed it ends as %q, want %q: %+v", got, ends, o.Results)
			}
			n := w.life.step
			writes := w.life.wrote
			if again := w.apply(s.want); len(w.life.wrote) != len(writes) || again.Changed {
				t.Errorf("done again it writes %v", w.life.wrote[len(writes):])
			}
			for point := range n {
				points++
				for _, grabbed := range []bool{false, true} {
					w, gpu := s.set(t)
					w.life.at = point
					w.apply(s.want)
					w.start()
					held := w.busy(gpu)
					if grabbed {
						held = w.grab(gpu)
					}
					w.takeUp()
					w.after(gpu, held, fmt.Sprintf("point %d, recovered", point))
					o := w.apply(s.want)
					w.after(gpu, held, fmt.Sprintf("point %d, grabbed %v", point, grabbed))
					if got := w.nowOn(gpu); !grabbed && !s.mayEnd(got, ends) {
						t.Errorf("after a crash at point %d of %d it ends as %q, want %q (before it was %q): %+v", point, n, got, ends, former, o.Results)
					}
				}
				if point%9 == i%9 {
					twice += s.crashTwice(t, point, ends)
				}
			}
		})
	}
	t.Logf("%d crash points, each with idle and with taken instances afterwards, and %d second crashes in the recovery", points, twice)
	if points < 1000 {
		t.Errorf("only %d crash points", points)
	}
}

// crashTwice ends also the process that recovers, at each of its points.
func (s *scenario) crashTwice(t *testing.T, point int, ends string) (count int) {
	for second := 0; ; second += 4 {
		w, gpu := s.set(t)
		w.life.at = point
		w.apply(s.want)
		w.start()
		w.life.at = second
		w.takeUp()
		if !w.life.dead {
			return count
		}
		count++
		w.start()
		held := w.busy(gpu)
		w.takeUp()
		o := w.apply(s.want)
		w.after(gpu, held, fmt.Sprintf("points %d and %d", point, second))
		if got := w.nowOn(gpu); !s.mayEnd(got, ends) {
			t.Errorf("after crashes at points %d and %d it ends as %q, want %q: %+v", point, second, got, ends, o.Results)
		}
	}
}

// busy are the devices that somebody has.
func (w *world) busy(gpu string) (held []string) {
	for _, it := range w.layout(gpu) {
		if it.busy {
			held = append(held, it.device)
		}
	}
	return held
}

// grab gives each device that there is to a pod.
func (w *world) grab(gpu string) (held []string) {
	for _, it := range w.layout(gpu) {
		if it.device != "" {
			w.give(it.device)
			held = append(held, it.device)
		}
	}
	return held
}

// after holds what is true whenever nothing is under way: what somebody has is still
// there, nothing is half made, and nothing is without an owner.
func (w *world) after(gpu string, held []string, when string) {
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
			w.t.Errorf("%s: %s was in use and is gone", when, device)
		}
	}
	if open := w.engine.Journal.Open(); len(open) > 0 {
		w.t.Errorf("%s: something is still under way on %v", when, open)
	}
}
