// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/gpuagent/partition"
)

const gpu1, gpu2 v1alpha1.GPUUUID = "GPU-1", "GPU-2"

func newObservedGPU(uuid v1alpha1.GPUUUID, devices ...string) v1alpha1.ObservedGPU {
	gpu := v1alpha1.ObservedGPU{UUID: uuid, Health: v1alpha1.GPUHealthy, MIG: v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled}}
	for i, device := range devices {
		gpu.Instances = append(gpu.Instances, v1alpha1.ObservedInstance{
			Profile: "1g.5gb", Start: int32(i), UUID: device,
			State: v1alpha1.InstanceIdle,
		})
	}
	return gpu
}

func newObservation(generation int64, gpus ...v1alpha1.ObservedGPU) observation {
	l := observation{node: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: generation}}, gpus: gpus}
	for i := range gpus {
		l.node.Spec.GPUs = append(l.node.Spec.GPUs, v1alpha1.DesiredGPU{UUID: gpus[i].UUID, MIGEnabled: true})
	}
	return l
}

func TestLayoutIsDue(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	gpu := newObservedGPU(gpu1, "MIG-a")
	active := newObservedGPU(gpu1, "MIG-a")
	active.Instances[0].State = v1alpha1.InstanceActive
	lost := newObservedGPU(gpu1, "MIG-a")
	lost.Health = v1alpha1.GPULost
	done := func(state partition.State, retry time.Time) layoutState {
		s := layoutState{
			uid: "u", generation: 3, outcome: &partition.Outcome{Complete: true, Results: []partition.Result{{State: state}}},
			retryAt: retry,
		}
		s.signature = layoutSignature([]v1alpha1.ObservedGPU{gpu}, s.isReclaiming())
		return s
	}
	interrupted := done(partition.Interrupted, time.Time{})
	interrupted.outcome.Complete = false
	another := newObservation(3, gpu)
	another.node.UID = "v"
	tests := map[string]struct {
		layout layoutState
		node   observation
		want   bool
	}{
		"never applied":               {layoutState{}, newObservation(3, gpu), true},
		"no GPUNode":                  {layoutState{}, observation{gpus: []v1alpha1.ObservedGPU{gpu}}, false},
		"no GPUs observed":            {layoutState{}, newObservation(3), false},
		"unchanged":                   {done(partition.Applied, time.Time{}), newObservation(3, gpu), false},
		"another spec":                {done(partition.Applied, time.Time{}), newObservation(4, gpu), true},
		"another GPUNode of the name": {done(partition.Applied, time.Time{}), another, true},
		"interrupted":                 {interrupted, newObservation(3, gpu), true},
		"an instance was removed":     {done(partition.Applied, time.Time{}), newObservation(3, newObservedGPU(gpu1)), true},
		"a GPU is lost":               {done(partition.Applied, time.Time{}), newObservation(3, lost), true},
		"a pod started":               {done(partition.Applied, time.Time{}), newObservation(3, active), false},
		"in use, and a pod ended":     {done(partition.Reclaiming, time.Time{}), newObservation(3, active), true},
		"before the retry":            {done(partition.Reclaiming, now.Add(time.Second)), newObservation(3, gpu), false},
		"retry":                       {done(partition.Reclaiming, now), newObservation(3, gpu), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.layout.isDue(tc.node, now); got != tc.want {
				t.Errorf("due %v, want %v", got, tc.want)
			}
		})
	}
}

func TestLayoutConditions(t *testing.T) {
	applied := metav1.Condition{Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied}
	s := layoutState{uid: "u", generation: 3, outcome: &partition.Outcome{Complete: true, Conditions: []metav1.Condition{applied}}}
	if diff := cmp.Diff([]metav1.Condition{applied}, s.conditions(newObservation(3, newObservedGPU(gpu1)), nil)); diff != "" {
		t.Error(diff)
	}
	if c := s.conditions(newObservation(3, newObservedGPU(gpu1)),
		errors.New("none"))[0]; c.Reason != v1alpha1.ReasonDevicePluginNotFound || c.Status != metav1.ConditionFalse {
		t.Errorf("%+v", c)
	}
	if c := s.conditions(newObservation(3, newObservedGPU(gpu1)), fmt.Errorf("%w: none", host.ErrDeviceNodes))[0]; c.Status != metav1.ConditionFalse ||
		c.Reason != v1alpha1.ReasonDeviceNodesMissing || !strings.Contains(c.Message, "the device plugin still offers the former ones") {
		t.Errorf("%+v", c)
	}
	if s.outcome.Conditions[0].Reason != v1alpha1.ReasonApplied {
		t.Error("conditions changed the outcome")
	}
	conflict := newObservation(4, newObservedGPU(gpu1))
	conflict.conflicts = []host.ConflictingManager{{Name: "NVIDIA's MIG manager", Location: "pod a/b", Advice: "stop it"}}
	if c := s.conditions(conflict, errors.New("none"))[0]; c.Reason != v1alpha1.ReasonMIGManager ||
		!strings.Contains(c.Message, "stop it") || !s.isComplete(conflict) {
		t.Errorf("%+v", c)
	}
	if s.isComplete(newObservation(4, newObservedGPU(gpu1))) {
		t.Error("another generation is complete")
	}
	if c := readyCondition(conflict, nil); c.Reason != v1alpha1.ReasonMIGManager {
		t.Errorf("%+v", c)
	}
}

func TestChangedGPUs(t *testing.T) {
	dir := t.TempDir()
	fresh := func() *devicePlugin {
		s := &devicePlugin{stateDir: dir}
		if err := s.load(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := fresh()
	l := newObservation(1, newObservedGPU(gpu1, "MIG-a"), newObservedGPU(gpu2))
	l.node.Spec.GPUs = l.node.Spec.GPUs[:1] // the spec does not list the other
	news := s.changedGPUs(l)
	if diff := cmp.Diff(map[v1alpha1.GPUUUID]string{gpu1: "Enabled 1g.5gb@0=MIG-a"}, news); diff != "" {
		t.Error(diff)
	}
	if err := s.save(news); err != nil {
		t.Fatal(err)
	}
	s = fresh() // as after a restart
	if news := s.changedGPUs(l); len(news) != 0 {
		t.Errorf("reloaded again: %v", news)
	}
	lost := newObservation(1, newObservedGPU(gpu1))
	lost.gpus[0].Health = v1alpha1.GPULost
	if news := s.changedGPUs(lost); len(news) != 0 {
		t.Errorf("reloaded for a GPU that does not answer: %v", news)
	}
	if news := s.changedGPUs(newObservation(1, newObservedGPU(gpu1, "MIG-b"))); len(news) != 1 {
		t.Errorf("%v", news)
	}
	for _, broken := range []string{"{", "null", "[]"} {
		if err := os.WriteFile(s.path(), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		again := &devicePlugin{stateDir: dir}
		if err := again.load(); err == nil && broken != "null" {
			t.Errorf("%s: no error", broken)
		}
		if news := again.changedGPUs(l); len(news) != 1 || again.save(news) != nil {
			t.Errorf("%s: %v", broken, news)
		}
	}
}

// fakeDriver fails to initialize with err.
type fakeDriver struct {
	nvml.Library
	err error
}

func (d *fakeDriver) Init() error                    { return d.err }
func (d *fakeDriver) Shutdown() error                { return nil }
func (d *fakeDriver) DriverVersion() (string, error) { return "550", nil }

func TestConnection(t *testing.T) {
	var c connection
	d := &fakeDriver{err: fmt.Errorf("loading: %w", nvml.ErrLibraryNotFound)}
	for _, want := range []int{1, 2, 4, 8, 10, 10} {
		if _, err := c.ensure(d); !errors.Is(err, nvml.ErrLibraryNotFound) {
			t.Fatalf("%v", err)
		}
		if got := c.retryDelay(10 * time.Second); got.Seconds() != float64(want) {
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
	c.close(d)
	if _, err := c.ensure(d); err == nil || c.retryDelay(time.Minute) != time.Second {
		t.Errorf("%v", err)
	}
	for err, want := range map[nvml.Error]string{
		nvml.ErrLibraryNotFound: v1alpha1.ReasonLibraryNotFound, nvml.ErrDriverNotLoaded: v1alpha1.ReasonDriverNotLoaded,
		nvml.ErrUnknown: v1alpha1.ReasonDriverError,
	} {
		if got := driverUnavailable(fmt.Errorf("x: %w", err)); got.Reason != want || got.Status != metav1.ConditionFalse {
			t.Errorf("%v: %+v", err, got)
		}
	}
}

// After a reload of the driver within one boot the agent knows of no instances, and applies the spec and
// tells the device plugin again, although the driver may give new instances the UUIDs of the former ones.
func TestDriverReloadIsLikeABoot(t *testing.T) {
	dir := t.TempDir()
	store, err := partition.OpenJournalDir(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	journal, err := partition.OpenJournal(store, "dgx-1", "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	module, next := filepath.Join(dir, "module/nvidia"), filepath.Join(dir, "module/next")
	if err := errors.Join(os.MkdirAll(module, 0o700), os.Mkdir(next, 0o700)); err != nil {
		t.Fatal(err)
	}
	o := newObservation(1, newObservedGPU(gpu1, "MIG-a"))
	r := &reconciler{log: logr.Discard(), cfg: &Config{Sys: dir}, engine: &partition.Engine{Journal: journal}, plugin: devicePlugin{stateDir: dir}}
	check := func(what string, wantKnown bool) {
		t.Helper()
		r.reconcileDriverLoad()
		known := []bool{
			len(journal.Instances("GPU-1")) == 1, !r.layout.isDue(o, time.Now()), len(r.plugin.changedGPUs(o)) == 0 && !r.plugin.outdated,
			r.nodes.verified[gpu1] != "",
		}
		if diff := cmp.Diff([]bool{wantKnown, wantKnown, wantKnown, wantKnown}, known); diff != "" || !r.layout.recovered {
			t.Errorf("%s: journal, layout, plugin, device nodes (-want +got)\n%s", what, diff)
		}
	}
	if err := r.plugin.load(); err != nil {
		t.Fatal(err)
	}
	r.reconcileDriverLoad()
	r.layout = newLayoutState(o, partition.Outcome{Complete: true}, true, time.Now())
	r.nodes.verified = map[v1alpha1.GPUUUID]string{gpu1: "x"}
	if err := errors.Join(r.plugin.save(r.plugin.changedGPUs(o)),
		journal.RecordEnd("GPU-1", []partition.OwnedInstance{{Placement: partition.Placement{Profile: "1g.5gb"}, ID: 1}})); err != nil {
		t.Fatal(err)
	}
	check("the same load", true)
	if err := errors.Join(os.Remove(module), os.Rename(next, module)); err != nil {
		t.Fatal(err)
	}
	check("another load", false)
}

// A host's MIG manager that is enabled for the next boot is a conflict, although none of its processes runs.
func TestEnabledMIGManagerIsAConflict(t *testing.T) {
	dir := t.TempDir()
	r := &reconciler{cfg: &Config{HostRoot: dir}}
	if found, err := r.findConflicts(nil, nil); len(found) > 0 || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	wants := filepath.Join(dir, "etc/systemd/system/multi-user.target.wants")
	if err := errors.Join(os.MkdirAll(wants, 0o700), os.Symlink("/nowhere", filepath.Join(wants, "nvidia-mig-manager.service"))); err != nil {
		t.Fatal(err)
	}
	found, err := r.findConflicts(nil, nil)
	if len(found) != 1 || err != nil || !strings.Contains(describeConflicts(found), "systemctl disable") {
		t.Errorf("%v, %v", found, err)
	}
	r.cfg.HostRoot = ""
	if found, err := r.findConflicts(nil, nil); len(found) > 0 || err != nil {
		t.Errorf("with a simulator: %v, %v", found, err)
	}
}

// The agent disconnects from the driver when it ends, as on SIGTERM: while NVML is open, the driver can
// neither be unloaded nor reset a GPU. Without a connection it has nothing to do.
func TestAgentDisconnectsFromDriverAtItsEnd(t *testing.T) {
	for _, connected := range []bool{true, false} {
		sim, err := simulator.New(simulator.Config{GPUs: []simulator.GPU{{Model: "A100-40GB"}}})
		if err != nil {
			t.Fatal(err)
		}
		r := &reconciler{log: logr.Discard(), cfg: &Config{}, library: sim.Open(), plugin: devicePlugin{stateDir: t.TempDir()}}
		if connected {
			if _, err := r.connection.ensure(r.library); err != nil {
				t.Fatal(err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.start(ended); err != nil {
			t.Error(err)
		}
		if _, err := r.library.GPUs(); !errors.Is(err, nvml.ErrUninitialized) || r.connection.connected {
			t.Errorf("connected %v: %v", connected, err)
		}
	}
}
