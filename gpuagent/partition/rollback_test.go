// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// The GPU has 3g.40gb@4, 2g.20gb@0 and 2g.20gb@2; desired are 3g.40gb@4 and 4g.40gb@0.
var (
	twoInstances = []Placement{placementAt("2g.20gb", 0), placementAt("2g.20gb", 2), placementAt("3g.40gb", 4)}
	wholeLayout  = []Placement{placementAt("4g.40gb", 0), placementAt("3g.40gb", 4)}
)

func newPartitionedTestNode(t reporter) (*testNode, string) {
	w := newTestNode(t, gpuInMIGMode("H100-80GB"), gpuInMIGMode("H100-80GB"))
	gpu := w.uuid(0)
	if o := w.apply(newDesiredGPU(gpu, twoInstances...)); o.Results[0].State != Applied {
		t.Fatalf("%+v", o)
	}
	w.startEngine()
	return w, gpu
}

func TestDriverFaults(t *testing.T) {
	former, wanted := describePlacements(twoInstances), describePlacements(wholeLayout)
	big := func(c simulator.Call) bool { return c.At.Size == 4 && c.At.Start == 0 }
	cases := []struct {
		name         string
		fault        simulator.Fault
		state        State
		reason       string
		ends         string
		restored     []Placement
		mostOfWrites int
	}{
		{
			"no room, once",
			simulator.Fault{Method: "CreateInstance", Times: 1, Err: nvml.ErrInsufficientResources},
			Applied, "Applied",
			wanted, nil, 20,
		},
		{
			"no room",
			simulator.Fault{Method: "CreateInstance", Match: big, Err: nvml.ErrInsufficientResources},
			RolledBack, "RolledBack",
			former, twoInstances[:2], 20,
		},
		{
			"an invalid place",
			simulator.Fault{Method: "CreateInstance", Match: big, Err: nvml.ErrInvalidArgument},
			RolledBack, "RolledBack",
			former, twoInstances[:2], 20,
		},
		{
			"unclear, and done",
			simulator.Fault{Method: "CreateInstance", Times: 1, AfterEffect: true, Err: nvml.ErrUnknown},
			Applied,
			"Applied", wanted, nil, 20,
		},
		{
			"not ready, twice",
			simulator.Fault{Method: "CreateComputeInstance", Times: 2, Err: nvml.ErrNotReady},
			Applied, "Applied",
			wanted, nil, 20,
		},
		{
			"no compute instance once, and it was done",
			simulator.Fault{Method: "CreateComputeInstance", Times: 1, AfterEffect: true, Err: nvml.ErrInvalidState},
			Applied, "Applied",
			wanted, nil, 20,
		},
		{
			"no compute instance, the first time for good",
			simulator.Fault{Method: "CreateComputeInstance", Times: 1, Err: nvml.ErrInvalidArgument},
			RolledBack, "RolledBack", former,
			twoInstances[:2], 20,
		},
		{
			"destroying is refused, twice",
			simulator.Fault{Method: "DestroyInstance", Times: 2, Err: nvml.ErrInUse},
			Applied, "Applied",
			wanted, nil, 20,
		},
		{
			"destroying is refused",
			simulator.Fault{Method: "DestroyInstance", Err: nvml.ErrInUse},
			Reclaiming, "InUse", former,
			twoInstances[:1], 20,
		},
		{
			"the second is refused",
			simulator.Fault{Method: "DestroyComputeInstance", Skip: 1, Err: nvml.ErrInUse},
			Reclaiming, "InUse", former,
			twoInstances[:1], 20,
		},
		{
			"destroyed, and unclear",
			simulator.Fault{Method: "DestroyInstance", Times: 1, AfterEffect: true, Err: nvml.ErrUnknown},
			Applied,
			"Applied", wanted, nil, 20,
		},
		{
			"already destroyed",
			simulator.Fault{Method: "DestroyComputeInstance", Times: 1, AfterEffect: true, Err: nvml.ErrNotFound},
			Applied,
			"Applied", wanted, nil, 20,
		},
		{
			"reported as destroyed, but present",
			simulator.Fault{Method: "DestroyComputeInstance", Times: 1, Err: nvml.ErrNotFound},
			Applied,
			"Applied", wanted, nil, 20,
		},
		{"no permission", simulator.Fault{Method: "DestroyComputeInstance", Err: nvml.ErrNoPermission}, Denied, "NoPermission", former, nil, 1},
		{"a time-out", simulator.Fault{Method: "DestroyComputeInstance", Err: nvml.ErrTimeout}, Unhealthy, "DriverError", former, nil, 1},
		{"a lost GPU", simulator.Fault{Method: "DestroyComputeInstance", Err: nvml.ErrGPULost}, Lost, "GPULost", former, nil, 1},
		{"unknown for ever", simulator.Fault{Method: "DestroyComputeInstance", Err: nvml.ErrUnknown}, Unhealthy, "DriverError", former, nil, 4},
		{
			"a GPU that has to be reset",
			simulator.Fault{Method: "DestroyComputeInstance", Err: nvml.ErrResetRequired},
			ResetRequired,
			"ResetRequired", former, nil, 1,
		},
		{
			"instances that cannot be read, once",
			simulator.Fault{Method: "Instances", Times: 1, Err: nvml.ErrNotSupported},
			Applied, "Applied",
			wanted, nil, 20,
		},
		{"instances that cannot be read", simulator.Fault{Method: "Instances", Err: nvml.ErrUnknown}, Unhealthy, "DriverError", former, nil, 0},
		{"processes that cannot be read", simulator.Fault{Method: "Processes", Err: nvml.ErrUnknown}, Reclaiming, "InUse", former, nil, 0},
		{
			"processes that cannot be read just before",
			simulator.Fault{Method: "Processes", Skip: 1, Err: nvml.ErrUnknown},
			Reclaiming,
			"InUse", former, nil, 0,
		},
		{
			"instances not to be read just before",
			simulator.Fault{Method: "Instances", Skip: 1, Err: nvml.ErrNotFound},
			Unhealthy,
			"DriverError", former, nil, 0,
		},
		{"the list of GPUs", simulator.Fault{Method: "GPUs", Times: 1, Err: nvml.ErrUnknown}, Unhealthy, "DriverError", former, nil, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, gpu := newPartitionedTestNode(t)
			over := w.sim.Fail(c.fault)
			o := w.apply(newDesiredGPU(gpu, wholeLayout...))
			over()
			r := o.Results[0]
			if r.State != c.state || r.Reason != c.reason {
				t.Errorf("it is %s (%s): %s; want %s (%s)", r.State, r.Reason, r.Message, c.state, c.reason)
			}
			if got := w.describeLayout(gpu); got != c.ends {
				t.Errorf("it ends as %q, want %q: %s", got, c.ends, r.Message)
			}
			if diff := cmp.Diff(c.restored, r.Restored); diff != "" || len(r.NotRestored) > 0 {
				t.Errorf("restored: %v", r)
			}
			if (r.State == Applied) != (r.Message == "") {
				t.Errorf("the message is %q", r.Message)
			}
			if got := len(w.life.wrote); got > c.mostOfWrites {
				t.Errorf("%d writes, at most %d were expected: %v", got, c.mostOfWrites, w.life.wrote)
			}
			// After the fault the change succeeds.
			w.advanceClock(time.Hour)
			if o := w.apply(newDesiredGPU(gpu, wholeLayout...)); o.Results[0].State != Applied || w.describeLayout(gpu) != wanted {
				t.Errorf("afterwards it is %+v, %s", o.Results[0], w.describeLayout(gpu))
			}
			w.checkAfterCrash(gpu, nil, "at the end")
		})
	}
}

// The result lists what cannot be restored, and the rest is restored.
func TestIncompleteRollback(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	defer w.sim.Fail(simulator.Fault{
		Method: "CreateInstance", Err: nvml.ErrInvalidArgument,
		Match: func(c simulator.Call) bool { return c.At.Start == 0 },
	})()
	r := w.apply(newDesiredGPU(gpu, wholeLayout...)).Results[0]
	if diff := cmp.Diff(twoInstances[:1], r.NotRestored); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(twoInstances[1:2], r.Restored); diff != "" {
		t.Error(diff)
	}
	if got := w.describeLayout(gpu); got != describePlacements(twoInstances[1:]) ||
		!strings.Contains(r.Message, "could not be restored: [2g.20gb@0]") {
		t.Errorf("%s: %s", got, r.Message)
	}
	w.checkAfterCrash(gpu, nil, "at the end")
}

// A GPU that is in use, lost or hung does not block others.
func TestFailedGPUDoesNotBlockOthers(t *testing.T) {
	for name, harm := range map[string]func(*testNode, string){
		"in use": func(w *testNode, gpu string) { w.assign(w.device(gpu, 0)) },
		"lost":   func(w *testNode, gpu string) { _ = w.sim.Lose(gpu) },
		"gone":   func(w *testNode, gpu string) { _ = w.sim.Vanish(gpu) },
		"invalid": func(w *testNode, gpu string) {
			w.strangers = []string{w.createForeign(gpu, placementAt("1g.10gb", 0), false)}
		},
		"unknown": func(w *testNode, gpu string) { w.sim.Fail(simulator.Fault{GPU: gpu, Err: nvml.ErrUnknown}) },
	} {
		t.Run(name, func(t *testing.T) {
			w, gpu := newPartitionedTestNode(t)
			other := w.uuid(1)
			if name == "invalid" {
				w.apply(newDesiredGPU(gpu, twoInstances[1:]...))
			}
			harm(w, gpu)
			o := w.apply(newDesiredGPU(gpu, wholeLayout...), newDesiredGPU(other, wholeLayout...))
			if o.Results[0].State == Applied || o.Results[1].State != Applied || w.describeLayout(other) != describePlacements(wholeLayout) {
				t.Errorf("%+v", o.Results)
			}
			if !o.Complete || !o.Changed || o.Conditions[0].Status != "False" || o.Conditions[0].Reason != o.Results[0].Reason {
				t.Errorf("%+v", o)
			}
		})
	}
}

// hungLibrary is a driver that never answers one method for one GPU.
type hungLibrary struct {
	nvml.Library
	gpu  string
	open chan struct{}
	mu   sync.Mutex
	hung int
}

func (s *hungLibrary) DestroyComputeInstance(gpu string, id, compute uint32) error {
	if gpu == s.gpu {
		s.mu.Lock()
		s.hung++
		s.mu.Unlock()
		<-s.open
	}
	return s.Library.DestroyComputeInstance(gpu, id, compute)
}

func TestHungDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a call that does not hang needs none of the time limit
		w, gpu := newPartitionedTestNode(t)
		other := w.uuid(1)
		s := &hungLibrary{Library: w.engine.Library, gpu: gpu, open: make(chan struct{})}
		w.engine.Library, w.engine.CallTimeout = s, 50*time.Millisecond
		for range 3 {
			o := w.apply(newDesiredGPU(gpu, wholeLayout...), newDesiredGPU(other, wholeLayout...))
			if o.Results[0].State != Unhealthy || o.Results[1].State != Applied {
				t.Fatalf("%+v", o.Results)
			}
			if g := o.Observed[0]; g.Health != v1alpha1.GPUUnhealthy || !strings.Contains(g.Message, "does not answer") {
				t.Errorf("%s: %s", g.Health, g.Message)
			}
			w.advanceClock(time.Hour)
		}
		s.mu.Lock()
		if s.hung != 1 {
			t.Errorf("%d calls hang", s.hung)
		}
		s.mu.Unlock()
		close(s.open)
		for w.engine.states.addHungCalls(gpu, 0) > 0 {
			time.Sleep(time.Millisecond)
		}
		w.advanceClock(time.Hour)
		if o := w.apply(newDesiredGPU(gpu, wholeLayout...)); o.Results[0].State != Applied ||
			w.describeLayout(gpu) != describePlacements(wholeLayout) {
			t.Errorf("after the hang: %+v", o.Results)
		}
		w.checkAfterCrash(gpu, nil, "at the end")
	})
}

// While the kubelet does not answer, everything counts as in use.
func TestHungKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, gpu := newPartitionedTestNode(t)
		w.engine.CallTimeout = 50 * time.Millisecond
		over := make(chan struct{})
		hang := func(context.Context, string) (map[string]Holder, error) { <-over; return nil, nil }
		r := w.engine.Apply(context.Background(), []v1alpha1.DesiredGPU{newDesiredGPU(gpu, wholeLayout...)}, hang).Results[0]
		if r.State != Reclaiming || w.describeLayout(gpu) != describePlacements(twoInstances) {
			t.Errorf("%+v", r)
		}
		close(over)
	})
}

// modeIgnoringLibrary is a driver that accepts every mode and reset without effect.
type modeIgnoringLibrary struct {
	nvml.Library
	calls int
}

func (d *modeIgnoringLibrary) SetMIGMode(string, nvml.Mode) (activation, err error) {
	d.calls++
	return nil, nil
}

func (d *modeIgnoringLibrary) Reset(string) error {
	d.calls++
	return nil
}

func TestDriverIgnoresMode(t *testing.T) {
	for model, pending := range map[string]bool{"H100-80GB": false, "A30": false, "A100-40GB": true} {
		w := newTestNode(t, gpuNotInMIGMode(model))
		gpu := w.uuid(0)
		d := &modeIgnoringLibrary{Library: w.engine.Library}
		if pending {
			_, err := w.sim.SetMIGMode(gpu, nvml.Enabled)
			requireNoError(t, err)
		}
		w.engine.Library = d
		layout := newDesiredGPU(gpu)
		layout.MayReset = true
		r := w.apply(layout).Results[0]
		if (r.State == ResetRequired) != pending || r.State == Applied || d.calls != 1 {
			t.Errorf("%s: %+v after %d calls", model, r, d.calls)
		}
	}
}

func TestFullDisk(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	w.disk.full = true
	o := w.apply(newDesiredGPU(gpu, wholeLayout...))
	if r := o.Results[0]; r.State != JournalFailed || !strings.Contains(r.Message, "no space left") || len(w.life.wrote) != 0 {
		t.Errorf("%+v, written: %v", r, w.life.wrote)
	}
	if w.describeLayout(gpu) != describePlacements(twoInstances) {
		t.Errorf("it is %s", w.describeLayout(gpu))
	}
	if open := w.engine.Journal.PendingGPUs(); len(open) > 0 || o.Changed {
		t.Errorf("no change was begun, but found %v", open)
	}
	w.disk.full = false
	if o := w.apply(newDesiredGPU(gpu, wholeLayout...)); o.Results[0].State != Applied {
		t.Errorf("%+v", o.Results)
	}
}

// If the disk fills up during a change, nothing more is written. With free space the change is
// completed.
func TestDiskFillsDuringChange(t *testing.T) {
	for writes := range 8 {
		w, gpu := newPartitionedTestNode(t)
		w.disk.writes = 0
		w.life.event = map[int]func(){}
		for step := range 400 {
			w.life.event[step] = func() { w.disk.full = w.disk.writes >= writes }
		}
		r := w.apply(newDesiredGPU(gpu, wholeLayout...)).Results[0]
		if done := len(w.life.wrote); r.State == JournalFailed && done > writes {
			t.Errorf("%d writes to the driver after %d to the disk", done, writes)
		}
		w.life.event, w.disk.full = nil, false
		w.startEngine()
		w.recover()
		w.checkAfterCrash(gpu, nil, "recovered")
		if r := w.apply(newDesiredGPU(gpu, wholeLayout...)).Results[0]; r.State != Applied ||
			w.describeLayout(gpu) != describePlacements(wholeLayout) {
			t.Errorf("%+v", r)
		}
	}
}

func TestUnreachableKubelet(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	w.deaf = errors.New("connection refused")
	r := w.apply(newDesiredGPU(gpu, wholeLayout...)).Results[0]
	if r.State != Reclaiming || r.Reason != v1alpha1.ReasonInUse || !strings.Contains(r.Message, "connection refused") ||
		w.describeLayout(gpu) != describePlacements(twoInstances) {
		t.Errorf("%+v %s", r, w.describeLayout(gpu))
	}
	// A change that destroys nothing needs no holders.
	other := w.uuid(1)
	if r := w.apply(newDesiredGPU(other, wholeLayout...)).Results[0]; r.State != Applied {
		t.Errorf("%+v", r)
	}
	if r := w.engine.Apply(context.Background(), []v1alpha1.DesiredGPU{newDesiredGPU(gpu, wholeLayout...)},
		nil).Results[0]; r.State != Reclaiming {
		t.Errorf("without holders: %+v", r)
	}
}

// An instance comes into use at any moment of a change: by a pod until the last check, by a process
// until the call itself. It is never destroyed.
func TestDeviceIsAssignedDuringChange(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	w.apply(newDesiredGPU(gpu, wholeLayout...))
	steps := w.life.step
	for step := range steps {
		for start := range 5 {
			w, gpu := newPartitionedTestNode(t)
			var held []string
			w.life.event = map[int]func(){step: func() {
				for _, it := range w.layout(gpu) {
					if it.at.Start == start && it.device != "" {
						requireNoError(t, w.sim.Attach(4711, it.device, 10, 10))
						held = []string{it.device}
					}
				}
			}}
			r := w.apply(newDesiredGPU(gpu, wholeLayout...)).Results[0]
			w.life.event = nil
			w.checkAfterCrash(gpu, held, "a holder arrived")
			got := w.describeLayout(gpu)
			if want := describePlacements(wholeLayout); r.State == Applied && got != want {
				t.Errorf("step %d: it is %s: %+v", step, got, r)
			}
			if r.State == Reclaiming && got != describePlacements(twoInstances) {
				t.Errorf("step %d: it is %s: %+v", step, got, r)
			}
		}
	}
}

// A context that ends during a change leaves the change to a later call.
func TestCanceledContext(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	w.apply(newDesiredGPU(gpu, wholeLayout...))
	steps := w.life.step
	for step := range steps {
		w, gpu := newPartitionedTestNode(t)
		ctx, cancel := context.WithCancel(context.Background())
		w.life.event = map[int]func(){step: cancel}
		o := w.engine.Apply(ctx, []v1alpha1.DesiredGPU{newDesiredGPU(gpu, wholeLayout...)}, w.inUse)
		cancel()
		if o.Complete != (o.Results[0].State == Applied) {
			t.Errorf("step %d: %+v", step, o.Results)
		}
		w.startEngine()
		w.recover()
		w.checkAfterCrash(gpu, nil, "recovered")
		if r := w.apply(newDesiredGPU(gpu, wholeLayout...)).Results[0]; r.State != Applied ||
			w.describeLayout(gpu) != describePlacements(wholeLayout) {
			t.Errorf("%+v", r)
		}
	}
}

func TestBootDuringChange(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	w.apply(newDesiredGPU(gpu, wholeLayout...))
	steps := w.life.step
	for step := 1; step < steps; step++ {
		w, gpu := newPartitionedTestNode(t)
		w.life.event = map[int]func(){step: w.reboot}
		w.apply(newDesiredGPU(gpu, wholeLayout...))
		w.life.event = nil
		w.boot++
		w.startEngine()
		if o := w.recover(); len(o.Results) != 0 {
			t.Errorf("the former boot's change was continued: %+v", o.Results)
		}
		if r := w.apply(newDesiredGPU(gpu, wholeLayout...)).Results[0]; r.State != Applied ||
			w.describeLayout(gpu) != describePlacements(wholeLayout) {
			t.Errorf("step %d: %+v", step, r)
		}
	}
}

// unknownModelLibrary is a driver with unknown GPU models.
type unknownModelLibrary struct{ nvml.Library }

func (u unknownModelLibrary) GPUs() ([]nvml.GPU, error) {
	gpus, err := u.Library.GPUs()
	for i := range gpus {
		gpus[i].PCIDevice = 0x2bb110de
	}
	return gpus, err
}

// silentLibrary is a driver with unknown GPU models that does not report their profiles.
type silentLibrary struct{ unknownModelLibrary }

func (silentLibrary) Profiles(string) ([]nvml.Profile, error) { return nil, nil }

func TestUnknownModel(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	w.engine.Library = silentLibrary{unknownModelLibrary{w.engine.Library}}
	for _, d := range []v1alpha1.DesiredGPU{newDesiredGPU(gpu, wholeLayout...), {UUID: v1alpha1.GPUUUID(gpu)}} {
		o := w.apply(d)
		if r := o.Results[0]; r.State != Invalid || !strings.Contains(r.Message, "does not know the GPU model") {
			t.Errorf("%+v", r)
		}
		if o.Observed[0].Message == "" || !slices.ContainsFunc(o.Observed[0].Instances,
			func(i v1alpha1.ObservedInstance) bool { return i.Foreign }) {
			t.Errorf("%+v", o.Observed[0])
		}
	}
	if w.describeLayout(gpu) != describePlacements(twoInstances) {
		t.Errorf("it is %s", w.describeLayout(gpu))
	}
	// A driver that reports the profiles lets the agent recognize its own instances.
	w.startEngine()
	if r := w.apply(newDesiredGPU(gpu)).Results[0]; r.State != Applied || w.describeLayout(gpu) != "" {
		t.Errorf("%+v %s", r, w.describeLayout(gpu))
	}
}

// A GPU that no table has is partitioned by what its driver reports, and its status lets the planner do
// the same. What Sluice does not know is no error (invariant 11).
func TestModelThatOnlyTheDriverKnows(t *testing.T) {
	w := newTestNode(t, simulator.GPU{Model: "RTX-PRO-6000"})
	w.engine.Library = unknownModelLibrary{w.engine.Library}
	gpu := w.uuid(0)
	wanted := []Placement{placementAt("2g.48gb+gfx", 0), placementAt("1g.24gb-me", 2), placementAt("1g.24gb+me.all", 3)}
	o := w.apply(newDesiredGPU(gpu, wanted[:2]...))
	if r := o.Results[0]; r.State != Applied {
		t.Fatalf("%+v", r)
	}
	got := o.Observed[0]
	if got.Message != "" || len(got.Instances) != 2 || got.Instances[0].Profile != "2g.48gb+gfx" || got.Instances[1].Profile != "1g.24gb-me" {
		t.Errorf("%+v", got)
	}
	if r := w.apply(newDesiredGPU(gpu, wanted...)).Results[0]; r.State != Invalid || !strings.Contains(r.Message, "one set") {
		t.Errorf("all media engines beside graphics: %+v", r)
	}
	model, table := mig.ObservedModel(&got), mig.ObservedModel(&v1alpha1.ObservedGPU{DeviceID: "0x2BB510DE"})
	if model == nil || model == table || model.Slices != table.Slices || !model.ModeWithoutReset ||
		len(model.Profiles) != len(table.Profiles) {
		t.Fatalf("the planner knows %+v, want %+v", model, table)
	}
	for i := range table.Profiles {
		want := &table.Profiles[i]
		if p, err := model.Profile(want.Name); err != nil || p.Name != want.Name || p.Shape != want.Shape || p.Max != want.Max ||
			!slices.Equal(p.Starts, want.Starts) {
			t.Errorf("%s: %+v, %v", want.Name, p, err)
		}
	}
	if again := mig.ObservedModel(got.DeepCopy()); again != model {
		t.Error("equal descriptions are two models")
	}
}

// A profile that the driver rounds differently is the same profile.
func TestProfilesAreMatchedByShape(t *testing.T) {
	w := newTestNode(t, gpuInMIGMode("H100-80GB"))
	gpu := w.uuid(0)
	if r := w.apply(newDesiredGPU(gpu, placementAt("3g.39gb", 4))).Results[0]; r.State != Applied || w.describeLayout(gpu) != "3g.40gb@4" {
		t.Errorf("%+v %s", r, w.describeLayout(gpu))
	}
	w.life.wrote = nil
	if w.apply(newDesiredGPU(gpu, placementAt("3g.40gb", 4))); len(w.life.wrote) != 0 {
		t.Errorf("%v", w.life.wrote)
	}
	if _, ok := mig.ModelByName("H100-80GB"); !ok {
		t.Error("no GPU model")
	}
}

// After a reload of the driver within one boot, instances at the places of Sluice's former ones belong to
// another program, even if the driver gives them the same identifiers and UUIDs. Guards invariant 7 of the
// design.
func TestInstancesOfAnotherProgramAfterDriverReload(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %v", restarted), func(t *testing.T) {
			w := newTestNodeWith(t, simulator.Config{GPUs: []simulator.GPU{gpuInMIGMode("A100-40GB")}, ReuseUUIDs: true})
			w.setDriverLoad("5")
			gpu, small := w.uuid(0), placementAt("1g.5gb", 0)
			if o := w.apply(newDesiredGPU(gpu, small)); o.Results[0].State != Applied {
				t.Fatalf("%+v", o)
			}
			former := w.device(gpu, 0)
			w.reboot() // the driver forgets its instances
			if restarted {
				w.startEngine()
			}
			w.setDriverLoad("6")
			if again := w.createForeign(gpu, small, false); again != former {
				t.Fatalf("the driver gave the UUID %s, not %s", again, former)
			}
			o := w.apply(newDesiredGPU(gpu, placementAt("7g.40gb", 0)))
			if o.Results[0].State != Invalid || w.describeLayout(gpu) != small.String() {
				t.Errorf("%+v, %s", o.Results, w.describeLayout(gpu))
			}
		})
	}
}
