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

func condOf(o Outcome, kind string) metav1.Condition {
	for _, c := range o.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

func TestObserve(t *testing.T) {
	w, gpu := cutWorld(t)
	stranger := w.foreign(w.uuid(1), at("1g.10gb", 6), false)
	w.give(w.device(gpu, 0))
	w.give(w.device(gpu, 4))
	got, err := w.engine.Observe(context.Background(), []v1alpha1.DesiredGPU{want(gpu, large...)}, w.inUse)
	must(t, err)
	pod := &v1alpha1.PodReference{Namespace: "lab", Name: "train"}
	want := []v1alpha1.ObservedInstance{
		{Profile: "2g.20gb", Start: 0, Size: 2, UUID: w.device(gpu, 0), State: v1alpha1.InstanceReclaiming, Message: "pod lab/train", Pod: pod},
		{Profile: "2g.20gb", Start: 2, Size: 2, UUID: w.device(gpu, 2), State: v1alpha1.InstanceIdle},
		{Profile: "3g.40gb", Start: 4, Size: 4, UUID: w.device(gpu, 4), State: v1alpha1.InstanceActive, Pod: pod},
	}
	if diff := cmp.Diff(want, got[0].Instances); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]v1alpha1.ObservedInstance{{Profile: "1g.10gb", Start: 6, Size: 1, UUID: stranger, State: v1alpha1.InstanceIdle, Foreign: true}}, got[1].Instances); diff != "" {
		t.Error(diff)
	}
	first := got[0]
	first.Instances = nil
	if diff := cmp.Diff(v1alpha1.ObservedGPU{
		UUID: v1alpha1.GPUUUID(gpu), Model: "NVIDIA H100 80GB HBM3", DeviceID: "0x233010DE", MemoryMiB: 81559, Health: v1alpha1.GPUHealthy,
		MIG:         v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled},
		MIGProfiles: []v1alpha1.MIGProfile{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"},
	}, first); diff != "" {
		t.Error(diff)
	}
	must(t, w.sim.Lose(gpu))
	got, err = w.engine.Observe(context.Background(), nil, w.inUse)
	must(t, err)
	if got[0].Health != v1alpha1.GPULost || got[1].Health != v1alpha1.GPUHealthy {
		t.Errorf("%s %s", got[0].Health, got[1].Health)
	}
}

func TestConditions(t *testing.T) {
	w, gpu := cutWorld(t)
	other := w.uuid(1)
	o := w.apply(want(gpu, pairs...), want(other))
	if c := condOf(o, "LayoutApplied"); c.Status != metav1.ConditionTrue || c.Reason != "Applied" || o.Changed || o.RetryAfter != 0 || !o.Complete {
		t.Errorf("%+v", o)
	}
	w.give(w.device(gpu, 0))
	o = w.apply(want(gpu, large...), want(other, at("9g.90gb", 0)))
	c := condOf(o, "LayoutApplied")
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonSeveral || !strings.Contains(c.Message, "pod lab/train") || !strings.Contains(c.Message, "9g.90gb") {
		t.Errorf("%+v", c)
	}
	if o.RetryAfter != 5*time.Second || o.Changed || !o.Complete {
		t.Errorf("%+v", o)
	}
	w.sim.Deny(true)
	o = w.apply(want(other, large...))
	if condOf(o, "NoPermission").Status != metav1.ConditionTrue || condOf(o, "LayoutApplied").Reason != "NoPermission" || o.RetryAfter != 0 {
		t.Errorf("%+v", o)
	}
	w.sim.Deny(false)
	must(t, w.sim.Lose(other))
	o = w.apply(want(gpu, pairs...))
	if condOf(o, "GPULost").Status != metav1.ConditionTrue || condOf(o, "LayoutApplied").Status != metav1.ConditionTrue || condOf(o, "ResetRequired").Status != metav1.ConditionFalse {
		t.Errorf("%+v", o.Conditions)
	}
}

func TestModes(t *testing.T) {
	resettable := want("", at("2g.12gb", 0))
	resettable.MayReset = true
	cases := []struct {
		name  string
		gpu   simulator.GPU
		world func(*world, string)
		want  v1alpha1.DesiredGPU
		state State
		ends  string
	}{
		{"somebody holds it", off("A30"), func(w *world, gpu string) { must(t, w.sim.Hold(gpu, true)) }, resettable, Reclaiming, "whole"},
		{"a process has it", off("A30"), func(w *world, gpu string) { must(t, w.sim.Attach(7, gpu, 1, 1)) }, resettable, Reclaiming, "whole"},
		{"a pod has it", off("A30"), func(w *world, gpu string) { w.give(gpu) }, resettable, Reclaiming, "whole"},
		{"it cannot be reset alone", simulator.GPU{Board: "A30", ResetsWithOthers: true}, nil, resettable, ResetRequired, "whole"},
		{"nobody says that it is pending", simulator.GPU{Board: "A30", Activation: simulator.AtResetUnsaid}, nil, resettable, Applied, "2g.12gb@0"},
		{"a new board in a machine that cannot", simulator.GPU{Board: "H100-80GB", Activation: simulator.AtReset}, nil, want("", at("3g.40gb", 0)), ResetRequired, "whole"},
		{"one that cannot be cut", off("L40S"), nil, want(""), Invalid, "whole"},
		{"one that cannot be cut and need not", off("L40S"), nil, v1alpha1.DesiredGPU{}, Applied, "whole"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.gpu)
			gpu := w.uuid(0)
			if c.world != nil {
				c.world(w, gpu)
			}
			c.want.UUID = v1alpha1.GPUUUID(gpu)
			o := w.apply(c.want)
			if r := o.Results[0]; r.State != c.state || w.nowOn(gpu) != c.ends {
				t.Errorf("%+v; it is %s", r, w.nowOn(gpu))
			}
			if (c.state == ResetRequired) != (o.Results[0].Reason == "ResetRequired") {
				t.Errorf("%+v", o.Results[0])
			}
			if open := w.engine.Journal.Open(); len(open) > 0 {
				t.Errorf("under way: %v", open)
			}
		})
	}
}

// A driver of before 550 does not know its profiles while the mode is off.
func TestAnOldDriver(t *testing.T) {
	sim, err := simulator.New(simulator.Config{GPUs: []simulator.GPU{off("H100-80GB")}, DriverVersion: "535.129.03"})
	must(t, err)
	must(t, sim.Init())
	w := newWorld(t, off("H100-80GB"))
	w.sim = sim
	w.start()
	gpu := w.uuid(0)
	if r := w.apply(want(gpu, large...)).Results[0]; r.State != Applied || w.cutAs(gpu) != words(large) {
		t.Errorf("%+v", r)
	}
}

// One that somebody has divided is not adopted, be it just where one is wanted: pods
// that ask for 3g.40gb would be given a device of one slice.
func TestADividedInstanceIsForeign(t *testing.T) {
	w := newWorld(t, on("H100-80GB"))
	gpu := w.uuid(0)
	w.foreign(gpu, at("3g.40gb", 4), true)
	device, err := w.sim.Part(gpu, w.layout(gpu)[0].id, 1)
	must(t, err)
	w.strangers = []string{device}
	o := w.apply(want(gpu, at("3g.40gb", 4)))
	if r := o.Results[0]; r.State != Invalid || !strings.Contains(r.Message, device) || len(w.life.wrote) != 0 {
		t.Errorf("%+v %v", r, w.life.wrote)
	}
	if it := o.Observed[0].Instances[0]; !it.Foreign || it.State != v1alpha1.InstanceError || !strings.Contains(it.Message, "1 of its 3 slices") {
		t.Errorf("%+v", it)
	}
	if r := w.apply(want(gpu)).Results[0]; r.State != Applied || w.cutAs(gpu) != "3g.40gb@4" {
		t.Errorf("%+v %s", r, w.cutAs(gpu))
	}
}

// With a journal that cannot be believed nothing is destroyed; what the spec asks for is
// adopted; and the doubt ends when nothing is foreign any more.
func TestAJournalThatCannotBeBelieved(t *testing.T) {
	w, gpu := cutWorld(t)
	w.disk.content = w.disk.content[:len(w.disk.content)/2]
	w.start()
	if o := w.takeUp(); o.Doubt == "" || len(o.Results) != 0 {
		t.Errorf("%+v", o)
	}
	o := w.apply(want(gpu, large...))
	if r := o.Results[0]; r.State != Invalid || w.cutAs(gpu) != words(pairs) || len(w.life.wrote) != 0 {
		t.Errorf("%+v %v", r, w.life.wrote)
	}
	if c := condOf(o, "LayoutApplied"); !strings.Contains(c.Message, "cannot be believed") || !strings.Contains(c.Message, "journal.unbelieved") {
		t.Errorf("%s", c.Message)
	}
	for _, it := range o.Observed[0].Instances {
		if it.Foreign != (it.Start != 4) {
			t.Errorf("%+v", it)
		}
	}
	o = w.apply(want(gpu, pairs...))
	if o.Results[0].State != Applied || o.Doubt != "" {
		t.Errorf("%+v", o)
	}
	w.start()
	if o := w.apply(want(gpu, large...)); o.Results[0].State != Applied || o.Doubt != "" {
		t.Errorf("%+v", o)
	}
}

// What is not listed is left alone, and what was begun on it is ended all the same.
func TestWhatIsNotListed(t *testing.T) {
	w, gpu := cutWorld(t)
	w.life.at = w.life.step + 40
	w.apply(want(gpu, large...))
	w.start()
	o := w.apply()
	if got := w.cutAs(gpu); got != words(large) || len(o.Results) != 1 || !o.Changed {
		t.Errorf("%s %+v", got, o.Results)
	}
	writes := len(w.life.wrote)
	if w.apply(); len(w.life.wrote) != writes {
		t.Errorf("%v", w.life.wrote[writes:])
	}
}

// A change that the driver refuses is not tried again and again: each attempt would take
// away and make again what pods may be given.
func TestAChangeThatWasUndoneIsNotTriedAtOnce(t *testing.T) {
	w, gpu := cutWorld(t)
	over := w.sim.Fail(simulator.Fault{Method: "CreateInstance", Err: nvml.ErrInvalidArgument, Match: func(c simulator.Call) bool { return c.At.Start == 0 && c.At.Size == 4 }})
	first := w.apply(want(gpu, large...))
	writes := len(w.life.wrote)
	again := w.apply(want(gpu, large...))
	if r := again.Results[0]; len(w.life.wrote) != writes || r.State != RolledBack || r.Message != first.Results[0].Message || again.Changed {
		t.Errorf("%v %+v", w.life.wrote[writes:], again)
	}
	if o := w.apply(want(gpu, pairs[1:]...)); o.Results[0].State != Applied {
		t.Errorf("something else: %+v", o.Results)
	}
	over()
	if o := w.apply(want(gpu, large...)); o.Results[0].State != Applied {
		t.Errorf("from another layout: %+v", o.Results)
	}
}

// Eight GPUs at once, watched meanwhile.
func TestManyAtOnce(t *testing.T) {
	var gpus []simulator.GPU
	for range 8 {
		gpus = append(gpus, on("A100-40GB"))
	}
	w := newWorld(t, gpus...)
	w.engine.Parallel = 4
	var small, big []v1alpha1.DesiredGPU
	for i := range gpus {
		small = append(small, want(w.uuid(i), at("1g.5gb", 0), at("1g.5gb", 6)))
		big = append(big, want(w.uuid(i), at("7g.40gb", 0)))
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
		w.after(w.uuid(i), nil, "at the end")
	}
}

func TestMessagesThatAreTooLong(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	if got := shorten(long, 100); len(got) > 100 || !strings.HasSuffix(got, "...") || strings.ToValidUTF8(got, "") != got {
		t.Errorf("%q", got)
	}
	if got := shorten("short", 100); got != "short" {
		t.Errorf("%q", got)
	}
}
