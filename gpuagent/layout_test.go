// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/rivals"
)

const one, two v1alpha1.GPUUUID = "GPU-1", "GPU-2"

func observed(uuid v1alpha1.GPUUUID, devices ...string) v1alpha1.ObservedGPU {
	gpu := v1alpha1.ObservedGPU{UUID: uuid, Health: v1alpha1.GPUHealthy, MIG: v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled}}
	for i, device := range devices {
		gpu.Instances = append(gpu.Instances, v1alpha1.ObservedInstance{Profile: "1g.5gb", Start: int32(i), UUID: device, State: v1alpha1.InstanceIdle})
	}
	return gpu
}

func looked(generation int64, gpus ...v1alpha1.ObservedGPU) *look {
	l := &look{node: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: generation}}, gpus: gpus}
	for i := range gpus {
		l.node.Spec.GPUs = append(l.node.Spec.GPUs, v1alpha1.DesiredGPU{UUID: gpus[i].UUID, MIGEnabled: true})
	}
	return l
}

func TestDue(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	gpu := observed(one, "MIG-a")
	active := observed(one, "MIG-a")
	active.Instances[0].State = v1alpha1.InstanceActive
	lost := observed(one, "MIG-a")
	lost.Health = v1alpha1.GPULost
	done := func(state partition.State, retry time.Time) layout {
		s := layout{uid: "u", generation: 3, outcome: &partition.Outcome{Complete: true, Results: []partition.Result{{State: state}}}, retry: retry}
		s.after = signature([]v1alpha1.ObservedGPU{gpu}, s.waits())
		return s
	}
	interrupted := done(partition.Interrupted, time.Time{})
	interrupted.outcome.Complete = false
	another := looked(3, gpu)
	another.node.UID = "v"
	tests := map[string]struct {
		layout layout
		look   *look
		want   bool
	}{
		"never done":                  {layout{}, looked(3, gpu), true},
		"no GPUNode":                  {layout{}, &look{gpus: []v1alpha1.ObservedGPU{gpu}}, false},
		"no GPUs to be seen":          {layout{}, looked(3), false},
		"as it was":                   {done(partition.Applied, time.Time{}), looked(3, gpu), false},
		"another spec":                {done(partition.Applied, time.Time{}), looked(4, gpu), true},
		"another GPUNode of the name": {done(partition.Applied, time.Time{}), another, true},
		"not ended":                   {interrupted, looked(3, gpu), true},
		"an instance is gone":         {done(partition.Applied, time.Time{}), looked(3, observed(one)), true},
		"a GPU is lost":               {done(partition.Applied, time.Time{}), looked(3, lost), true},
		"a pod came":                  {done(partition.Applied, time.Time{}), looked(3, active), false},
		"in use, and a pod went":      {done(partition.Reclaiming, time.Time{}), looked(3, active), true},
		"not yet time":                {done(partition.Reclaiming, now.Add(time.Second)), looked(3, gpu), false},
		"time":                        {done(partition.Reclaiming, now), looked(3, gpu), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.layout.due(tc.look, now); got != tc.want {
				t.Errorf("due %v, want %v", got, tc.want)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	applied := metav1.Condition{Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied}
	s := layout{uid: "u", generation: 3, outcome: &partition.Outcome{Complete: true, Conditions: []metav1.Condition{applied}}}
	if diff := cmp.Diff([]metav1.Condition{applied}, s.conditions(looked(3, observed(one)))); diff != "" {
		t.Error(diff)
	}
	s.untold = errors.New("none")
	if c := s.conditions(looked(3, observed(one)))[0]; c.Reason != v1alpha1.ReasonDevicePluginNotFound || c.Status != metav1.ConditionFalse {
		t.Errorf("%+v", c)
	}
	if s.outcome.Conditions[0].Reason != v1alpha1.ReasonApplied {
		t.Error("the outcome was changed")
	}
	rival := looked(4, observed(one))
	rival.rivals = []rivals.Rival{{Name: "NVIDIA's MIG manager", Where: "pod a/b", Advice: "stop it"}}
	if c := s.conditions(rival)[0]; c.Reason != v1alpha1.ReasonMIGManager || !strings.Contains(c.Message, "stop it") || !s.complete(rival) {
		t.Errorf("%+v", c)
	}
	if s.complete(looked(4, observed(one))) {
		t.Error("another generation is complete")
	}
	if c := ready(rival); c.Reason != v1alpha1.ReasonMIGManager {
		t.Errorf("%+v", c)
	}
}

func TestNews(t *testing.T) {
	dir := t.TempDir()
	fresh := func() *told {
		s := &told{path: dir}
		if err := s.load(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := fresh()
	l := looked(1, observed(one, "MIG-a"), observed(two))
	l.node.Spec.GPUs = l.node.Spec.GPUs[:1] // the other is nobody's to tell of
	news := s.news(l)
	if diff := cmp.Diff(map[v1alpha1.GPUUUID]string{one: "Enabled 1g.5gb@0=MIG-a"}, news); diff != "" {
		t.Error(diff)
	}
	if err := s.keep(news); err != nil {
		t.Fatal(err)
	}
	s = fresh() // another process
	if news := s.news(l); len(news) != 0 {
		t.Errorf("told again: %v", news)
	}
	lost := looked(1, observed(one))
	lost.gpus[0].Health = v1alpha1.GPULost
	if news := s.news(lost); len(news) != 0 {
		t.Errorf("told of a GPU that does not answer: %v", news)
	}
	if news := s.news(looked(1, observed(one, "MIG-b"))); len(news) != 1 {
		t.Errorf("%v", news)
	}
	for _, broken := range []string{"{", "null", "[]"} {
		if err := os.WriteFile(s.file(), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		again := &told{path: dir}
		if err := again.load(); err == nil && broken != "null" {
			t.Errorf("%s: no error", broken)
		}
		if news := again.news(l); len(news) != 1 || again.keep(news) != nil {
			t.Errorf("%s: %v", broken, news)
		}
	}
}

// driver is one that cannot be used, or can.
type driver struct {
	nvml.Library
	err error
}

func (d *driver) Init() error                    { return d.err }
func (d *driver) Shutdown() error                { return nil }
func (d *driver) DriverVersion() (string, error) { return "550", nil }

func TestConnection(t *testing.T) {
	var c connection
	d := &driver{err: fmt.Errorf("loading: %w", nvml.ErrLibraryNotFound)}
	for _, want := range []int{1, 2, 4, 8, 10, 10} {
		if _, err := c.ensure(d); !errors.Is(err, nvml.ErrLibraryNotFound) {
			t.Fatalf("%v", err)
		}
		if got := c.after(10 * time.Second); got.Seconds() != float64(want) {
			t.Errorf("after %v, want %ds", got, want)
		}
	}
	d.err = nil
	if version, err := c.ensure(d); version != "550" || err != nil {
		t.Errorf("%s, %v", version, err)
	}
	d.err = nvml.ErrDriverNotLoaded
	if version, err := c.ensure(d); version != "550" || err != nil {
		t.Errorf("connected already: %s, %v", version, err)
	}
	c.lose(d)
	if _, err := c.ensure(d); err == nil || c.after(time.Minute) != time.Second {
		t.Errorf("%v", err)
	}
	for err, want := range map[nvml.Error]string{
		nvml.ErrLibraryNotFound: v1alpha1.ReasonLibraryNotFound, nvml.ErrDriverNotLoaded: v1alpha1.ReasonDriverNotLoaded, nvml.ErrUnknown: v1alpha1.ReasonDriverError,
	} {
		if got := notConnected(fmt.Errorf("x: %w", err)); got.Reason != want || got.Status != metav1.ConditionFalse {
			t.Errorf("%v: %+v", err, got)
		}
	}
}
