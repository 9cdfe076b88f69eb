// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

func findCondition(o Outcome, kind string) metav1.Condition {
	for _, c := range o.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

func TestObserve(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	stranger := w.createForeign(w.uuid(1), placementAt("1g.10gb", 6), false)
	w.assign(w.device(gpu, 0))
	w.assign(w.device(gpu, 4))
	got, err := w.engine.Observe(context.Background(), []v1alpha1.DesiredGPU{newDesiredGPU(gpu, wholeLayout...)}, w.inUse)
	requireNoError(t, err)
	pod := &v1alpha1.PodReference{Namespace: "lab", Name: "train"}
	want := []v1alpha1.ObservedInstance{
		{Profile: "2g.20gb", Start: 0, Size: 2, UUID: w.device(gpu, 0), State: v1alpha1.InstanceReclaiming, Message: "pod lab/train", Pod: pod},
		{Profile: "2g.20gb", Start: 2, Size: 2, UUID: w.device(gpu, 2), State: v1alpha1.InstanceIdle},
		{Profile: "3g.40gb", Start: 4, Size: 4, UUID: w.device(gpu, 4), State: v1alpha1.InstanceActive, Pod: pod},
	}
	if diff := cmp.Diff(want, got[0].Instances); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]v1alpha1.ObservedInstance{{
		Profile: "1g.10gb", Start: 6, Size: 1, UUID: stranger, State: v1alpha1.InstanceIdle,
		Foreign: true,
	}}, got[1].Instances); diff != "" {
		t.Error(diff)
	}
	first := got[0]
	first.Instances = nil
	if diff := cmp.Diff(v1alpha1.ObservedGPU{
		UUID: v1alpha1.GPUUUID(gpu), Model: "NVIDIA H100 80GB HBM3", DeviceID: "0x233010DE", MemoryMiB: 81559, Health: v1alpha1.GPUHealthy,
		MIG:         v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled},
		MIGProfiles: []v1alpha1.MIGProfile{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"},
		MIGPlacements: []v1alpha1.MIGPlacement{
			{Profile: "1g.10gb", Size: 1, Starts: []int32{0, 1, 2, 3, 4, 5, 6}, Max: 7},
			{Profile: "1g.10gb+me", Size: 1, Starts: []int32{0, 1, 2, 3, 4, 5, 6}, Max: 1},
			{Profile: "1g.20gb", Size: 2, Starts: []int32{0, 2, 4, 6}, Max: 4},
			{Profile: "2g.20gb", Size: 2, Starts: []int32{0, 2, 4}, Max: 3},
			{Profile: "3g.40gb", Size: 4, Starts: []int32{0, 4}, Max: 2},
			{Profile: "4g.40gb", Size: 4, Starts: []int32{0}, Max: 1},
			{Profile: "7g.80gb", Size: 8, Starts: []int32{0}, Max: 1},
		},
	}, first); diff != "" {
		t.Error(diff)
	}
	requireNoError(t, w.sim.Lose(gpu))
	got, err = w.engine.Observe(context.Background(), nil, w.inUse)
	requireNoError(t, err)
	if got[0].Health != v1alpha1.GPULost || got[1].Health != v1alpha1.GPUHealthy {
		t.Errorf("%s %s", got[0].Health, got[1].Health)
	}
}

func TestConditions(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	other := w.uuid(1)
	o := w.apply(newDesiredGPU(gpu, twoInstances...), newDesiredGPU(other))
	if c := findCondition(o, "LayoutApplied"); c.Status != metav1.ConditionTrue || c.Reason != "Applied" || o.Changed ||
		o.RetryAfter != 0 || !o.Complete {
		t.Errorf("%+v", o)
	}
	w.assign(w.device(gpu, 0))
	o = w.apply(newDesiredGPU(gpu, wholeLayout...), newDesiredGPU(other, placementAt("9g.90gb", 0)))
	c := findCondition(o, "LayoutApplied")
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonMultipleReasons || !strings.Contains(c.Message, "pod lab/train") ||
		!strings.Contains(c.Message, "9g.90gb") {
		t.Errorf("%+v", c)
	}
	if o.RetryAfter != 5*time.Second || o.Changed || !o.Complete {
		t.Errorf("%+v", o)
	}
	w.sim.Deny(true)
	o = w.apply(newDesiredGPU(other, wholeLayout...))
	if findCondition(o, "NoPermission").Status != metav1.ConditionTrue || findCondition(o, "LayoutApplied").Reason != "NoPermission" ||
		o.RetryAfter != 0 {
		t.Errorf("%+v", o)
	}
	w.sim.Deny(false)
	requireNoError(t, w.sim.Lose(other))
	o = w.apply(newDesiredGPU(gpu, twoInstances...))
	if findCondition(o, "GPULost").Status != metav1.ConditionTrue || findCondition(o, "LayoutApplied").Status != metav1.ConditionTrue ||
		findCondition(o, "ResetRequired").Status != metav1.ConditionFalse {
		t.Errorf("%+v", o.Conditions)
	}
}

func TestMIGModeChanges(t *testing.T) {
	resettable := newDesiredGPU("", placementAt("2g.12gb", 0))
	resettable.MayReset = true
	cases := []struct {
		name  string
		gpu   simulator.GPU
		world func(*testNode, string)
		want  v1alpha1.DesiredGPU
		state State
		ends  string
	}{
		{
			"another program holds it", gpuNotInMIGMode("A30"), func(w *testNode, gpu string) { requireNoError(t, w.sim.Hold(gpu, true)) },
			resettable, Reclaiming, "whole",
		},
		{
			"a process has it", gpuNotInMIGMode("A30"), func(w *testNode, gpu string) { requireNoError(t, w.sim.Attach(7, gpu, 1, 1)) },
			resettable, Reclaiming, "whole",
		},
		{"a pod has it", gpuNotInMIGMode("A30"), func(w *testNode, gpu string) { w.assign(gpu) }, resettable, Reclaiming, "whole"},
		{"it cannot be reset alone", simulator.GPU{Model: "A30", ResetsWithOthers: true}, nil, resettable, ResetRequired, "whole"},
		{
			"a silent pending mode",
			simulator.GPU{Model: "A30", Activation: simulator.AtResetSilently},
			nil, resettable, Applied,
			"2g.12gb@0",
		},
		{
			"a new GPU model in a machine without support",
			simulator.GPU{Model: "H100-80GB", Activation: simulator.AtReset},
			nil,
			newDesiredGPU("", placementAt("3g.40gb", 0)), ResetRequired, "whole",
		},
		{"a GPU without MIG", gpuNotInMIGMode("L40S"), nil, newDesiredGPU(""), Invalid, "whole"},
		{"a GPU without MIG, and none desired", gpuNotInMIGMode("L40S"), nil, v1alpha1.DesiredGPU{}, Applied, "whole"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newTestNode(t, c.gpu)
			gpu := w.uuid(0)
			if c.world != nil {
				c.world(w, gpu)
			}
			c.want.UUID = v1alpha1.GPUUUID(gpu)
			o := w.apply(c.want)
			if r := o.Results[0]; r.State != c.state || w.describeGPU(gpu) != c.ends {
				t.Errorf("%+v; it is %s", r, w.describeGPU(gpu))
			}
			if (c.state == ResetRequired) != (o.Results[0].Reason == "ResetRequired") {
				t.Errorf("%+v", o.Results[0])
			}
			if open := w.engine.Journal.PendingGPUs(); len(open) > 0 {
				t.Errorf("under way: %v", open)
			}
		})
	}
}

// A driver before 550 reports no profiles while the mode is off.
func TestOldDriver(t *testing.T) {
	sim, err := simulator.New(simulator.Config{GPUs: []simulator.GPU{gpuNotInMIGMode("H100-80GB")}, DriverVersion: "535.129.03"})
	requireNoError(t, err)
	requireNoError(t, sim.Init())
	w := newTestNode(t, gpuNotInMIGMode("H100-80GB"))
	w.sim = sim
	w.startEngine()
	gpu := w.uuid(0)
	if r := w.apply(newDesiredGPU(gpu, wholeLayout...)).Results[0]; r.State != Applied ||
		w.describeLayout(gpu) != describePlacements(wholeLayout) {
		t.Errorf("%+v", r)
	}
}

// An instance that another program divided is not adopted, even at a desired place: pods that
// request 3g.40gb would get a device with one slice.
func TestDividedInstanceIsForeign(t *testing.T) {
	w := newTestNode(t, gpuInMIGMode("H100-80GB"))
	gpu := w.uuid(0)
	w.createForeign(gpu, placementAt("3g.40gb", 4), true)
	device, err := w.sim.CreatePartialComputeInstance(gpu, w.layout(gpu)[0].id, 1)
	requireNoError(t, err)
	w.strangers = []string{device}
	o := w.apply(newDesiredGPU(gpu, placementAt("3g.40gb", 4)))
	if r := o.Results[0]; r.State != Invalid || !strings.Contains(r.Message, device) || len(w.life.wrote) != 0 {
		t.Errorf("%+v %v", r, w.life.wrote)
	}
	if it := o.Observed[0].Instances[0]; !it.Foreign || it.State != v1alpha1.InstanceError ||
		!strings.Contains(it.Message, "1 of its 3 slices") {
		t.Errorf("%+v", it)
	}
	if r := w.apply(newDesiredGPU(gpu)).Results[0]; r.State != Applied || w.describeLayout(gpu) != "3g.40gb@4" {
		t.Errorf("%+v %s", r, w.describeLayout(gpu))
	}
}

// With an unusable journal the engine destroys nothing and adopts requested instances. The journal is
// trusted again once no instance is foreign.
func TestUntrustedJournal(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	w.disk.content = w.disk.content[:len(w.disk.content)/2]
	w.startEngine()
	if o := w.recover(); o.UntrustedReason == "" || len(o.Results) != 0 {
		t.Errorf("%+v", o)
	}
	o := w.apply(newDesiredGPU(gpu, wholeLayout...))
	if r := o.Results[0]; r.State != Invalid || w.describeLayout(gpu) != describePlacements(twoInstances) || len(w.life.wrote) != 0 {
		t.Errorf("%+v %v", r, w.life.wrote)
	}
	if c := findCondition(o, "LayoutApplied"); !strings.Contains(c.Message, "is unusable") ||
		!strings.Contains(c.Message, "journal.unbelieved") {
		t.Errorf("%s", c.Message)
	}
	for _, it := range o.Observed[0].Instances {
		if it.Foreign != (it.Start != 4) {
			t.Errorf("%+v", it)
		}
	}
	o = w.apply(newDesiredGPU(gpu, twoInstances...))
	if o.Results[0].State != Applied || o.UntrustedReason != "" {
		t.Errorf("%+v", o)
	}
	w.startEngine()
	if o := w.apply(newDesiredGPU(gpu, wholeLayout...)); o.Results[0].State != Applied || o.UntrustedReason != "" {
		t.Errorf("%+v", o)
	}
}

// Unlisted GPUs stay as they are, but their unfinished changes end.
func TestUnlistedGPUs(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	w.life.at = w.life.step + 40
	w.apply(newDesiredGPU(gpu, wholeLayout...))
	w.startEngine()
	o := w.apply()
	if got := w.describeLayout(gpu); got != describePlacements(wholeLayout) || len(o.Results) != 1 || !o.Changed {
		t.Errorf("%s %+v", got, o.Results)
	}
	writes := len(w.life.wrote)
	if w.apply(); len(w.life.wrote) != writes {
		t.Errorf("%v", w.life.wrote[writes:])
	}
}

// A change that the driver refuses is not repeated at once: each attempt would destroy and recreate
// devices that pods may get.
func TestRolledBackChangeIsNotRetriedAtOnce(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	over := w.sim.Fail(simulator.Fault{
		Method: "CreateInstance", Err: nvml.ErrInvalidArgument,
		Match: func(c simulator.Call) bool { return c.At.Start == 0 && c.At.Size == 4 },
	})
	first := w.apply(newDesiredGPU(gpu, wholeLayout...))
	writes := len(w.life.wrote)
	again := w.apply(newDesiredGPU(gpu, wholeLayout...))
	if r := again.Results[0]; len(w.life.wrote) != writes || r.State != RolledBack || r.Message != first.Results[0].Message || again.Changed {
		t.Errorf("%v %+v", w.life.wrote[writes:], again)
	}
	if o := w.apply(newDesiredGPU(gpu, twoInstances[1:]...)); o.Results[0].State != Applied {
		t.Errorf("something else: %+v", o.Results)
	}
	over()
	if o := w.apply(newDesiredGPU(gpu, wholeLayout...)); o.Results[0].State != Applied {
		t.Errorf("from another layout: %+v", o.Results)
	}
}

// Eight GPUs change at once while they are observed.
func TestConcurrentGPUs(t *testing.T) {
	var gpus []simulator.GPU
	for range 8 {
		gpus = append(gpus, gpuInMIGMode("A100-40GB"))
	}
	w := newTestNode(t, gpus...)
	w.engine.Concurrency = 4
	var small, big []v1alpha1.DesiredGPU
	for i := range gpus {
		small = append(small, newDesiredGPU(w.uuid(i), placementAt("1g.5gb", 0), placementAt("1g.5gb", 6)))
		big = append(big, newDesiredGPU(w.uuid(i), placementAt("7g.40gb", 0)))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 50 {
			_, _ = w.engine.Observe(context.Background(), small, w.inUse)
		}
	}()
	for range 3 {
		for _, layout := range [][]v1alpha1.DesiredGPU{small, big} {
			for _, r := range w.apply(layout...).Results {
				if r.State != Applied {
					t.Errorf("%+v", r)
				}
			}
		}
	}
	<-done
	for i := range gpus {
		w.checkAfterCrash(w.uuid(i), nil, "at the end")
	}
}

func TestMessagesAreTruncated(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	if got := truncate(long, 100); len(got) > 100 || !strings.HasSuffix(got, "...") || strings.ToValidUTF8(got, "") != got {
		t.Errorf("%q", got)
	}
	if got := truncate("short", 100); got != "short" {
		t.Errorf("%q", got)
	}
}

// A decision does not use the devices that a report has read: another program may have created an
// instance's device again, and a pod may have it by now (invariant 7).
func TestDecisionsReadDevicesAgain(t *testing.T) {
	w, gpu := newPartitionedTestNode(t)
	spec := []v1alpha1.DesiredGPU{newDesiredGPU(gpu, twoInstances...)}
	before, err := w.engine.Observe(t.Context(), spec, w.inUse)
	requireNoError(t, err)
	it := w.layout(gpu)[0]
	requireNoError(t, w.sim.DestroyComputeInstance(gpu, it.id, 0))
	made, err := w.sim.CreateComputeInstance(gpu, it.id)
	requireNoError(t, err)
	if cached, err := w.engine.Observe(t.Context(), spec, w.inUse); err != nil || cached[0].Instances[0].UUID != before[0].Instances[0].UUID {
		t.Errorf("a report at rest read the devices again: %+v, %v", cached, err)
	}
	w.assign(made.UUID)
	w.apply(newDesiredGPU(gpu, wholeLayout...))
	if got := w.device(gpu, it.at.Start); got != made.UUID {
		t.Errorf("the device of a pod was destroyed: %q at %d, want %s", got, it.at.Start, made.UUID)
	}
	after, err := w.engine.Observe(t.Context(), spec, w.inUse)
	requireNoError(t, err)
	if after[0].Instances[0].UUID != made.UUID {
		t.Errorf("after a change the report has %s, want %s", after[0].Instances[0].UUID, made.UUID)
	}
}

// An administrator loads the driver again to mend a GPU. What the engine remembers of the former load, that
// the GPU is unhealthy or its compute instances, says nothing about the next.
func TestDriverReloadEndsBackoff(t *testing.T) {
	w := newTestNode(t, simulator.GPU{Model: "H100-80GB"})
	gpu := w.uuid(0)
	w.setDriverLoad("1")
	want := newDesiredGPU(gpu, placementAt("3g.40gb", 0))
	if r := w.apply(want).Results[0]; r.State != Applied || w.engine.readings.computeInstances(gpu, w.now) == nil {
		t.Errorf("%+v", r)
	}
	w.engine.markUnhealthy(gpu, "no answer")
	w.setDriverLoad("1")
	if r := w.apply(want).Results[0]; r.State != Unhealthy {
		t.Errorf("%+v", r)
	}
	w.setDriverLoad("2")
	if w.engine.readings.computeInstances(gpu, w.now) != nil {
		t.Error("the compute instances of the former load are known")
	}
	if r := w.apply(want).Results[0]; r.State != Applied {
		t.Errorf("%+v", r)
	}
}
