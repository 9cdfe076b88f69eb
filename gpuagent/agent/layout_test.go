// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
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

// If only some processes could be signaled, those are not signaled again in each pass: they would never
// finish enumerating.
func TestDevicePluginIsNotReloadedForHungGPU(t *testing.T) {
	proc := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args, cmd.Env = []string{"nvidia-device-plugin"}, append(os.Environ(), "SLUICE_TEST_PLUGIN=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if lines := bufio.NewScanner(out); !lines.Scan() {
		t.Fatal("no output from the plugin")
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := os.Symlink("/proc/"+pid, filepath.Join(proc, pid)); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(proc, "7000001") // its status lacks the signal mask
	if err := errors.Join(os.Mkdir(odd, 0o700), os.WriteFile(filepath.Join(odd, "cmdline"), []byte("nvidia-device-plugin\x00"), 0o600),
		os.WriteFile(filepath.Join(odd, "status"), []byte("Name:\tx\n"), 0o600)); err != nil {
		t.Fatal(err)
	}

	a := &reconciler{log: logr.Discard(), cfg: &Config{Intervals: Intervals{Retry: metav1.Duration{Duration: time.Hour}}}}
	a.plugin = devicePlugin{DevicePlugin: host.DevicePlugin{Proc: proc, Command: "nvidia-device-plugin"}, stateDir: t.TempDir()}
	a.layout.recovered = true
	if err := a.plugin.load(); err != nil {
		t.Fatal(err)
	}
	l := newObservation(1, newObservedGPU(gpu1, "MIG-a"))
	if err := a.reconcileDevicePlugin(l); err == nil || a.plugin.retryAt.IsZero() {
		t.Fatalf("error %v, retry at %v", err, a.plugin.retryAt)
	}
	if err := os.RemoveAll(odd); err != nil {
		t.Fatal(err)
	}
	if err := a.reconcileDevicePlugin(l); err == nil {
		t.Error("reloaded again at once")
	}
	a.plugin.retryAt = time.Now().Add(-time.Second)
	if err := a.reconcileDevicePlugin(l); err != nil || len(a.plugin.changedGPUs(l)) != 0 {
		t.Errorf("%v", err)
	}
}

// After an agent that ends between a change and the signal, the next one sends the signal, even if the
// devices have the same UUIDs as before.
func TestNextAgentReloadsDevicePlugin(t *testing.T) {
	s := &devicePlugin{stateDir: t.TempDir()}
	if err := s.load(); err != nil {
		t.Fatal(err)
	}
	l := newObservation(1, newObservedGPU(gpu1, "MIG-a"))
	if err := s.save(s.changedGPUs(l)); err != nil {
		t.Fatal(err)
	}
	if err := s.invalidate(); err != nil {
		t.Fatal(err)
	}
	next := &devicePlugin{stateDir: s.stateDir}
	if err := next.load(); err != nil || len(next.changedGPUs(l)) != 1 {
		t.Errorf("%v, %v", next.changedGPUs(l), err)
	}
	if err := next.invalidate(); err != nil {
		t.Errorf("twice: %v", err)
	}
	if _, err := os.Stat(s.path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
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
