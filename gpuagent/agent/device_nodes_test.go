// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// recordedDevices records device nodes in place of the kernel, since only root may make them.
type recordedDevices map[string]uint64

func (d recordedDevices) Mknod(path string, _ uint32, device uint64) error {
	// The caller renames the file.
	d[filepath.Join(filepath.Dir(path), strings.TrimPrefix(filepath.Base(path), ".sluice-"))] = device
	return os.WriteFile(path, nil, 0o600)
}

func (d recordedDevices) Lstat(path string) (host.FileStatus, error) {
	if _, err := os.Lstat(path); err != nil {
		return host.FileStatus{}, err
	}
	return host.FileStatus{Mode: unix.S_IFCHR | 0o444, Device: d[path]}, nil
}

// nodesTest is a reconciler with one simulated GPU in MIG mode.
type nodesTest struct {
	*testing.T
	*reconciler
	devices recordedDevices
	driver  nvml.Library
	gpu     string
}

func newNodesTest(t *testing.T) *nodesTest {
	t.Helper()
	sim, err := simulator.New(simulator.Config{Seed: "caps", GPUs: []simulator.GPU{{Model: "A100-40GB", Mode: nvml.Enabled}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &nodesTest{T: t, devices: recordedDevices{}, driver: sim.Open()}
	if err := w.driver.Init(); err != nil {
		t.Fatal(err)
	}
	gpus, err := w.driver.GPUs()
	if err != nil {
		t.Fatal(err)
	}
	w.gpu = gpus[0].UUID
	dir := t.TempDir()
	cfg := &Config{Proc: filepath.Join(dir, "proc"), HostRoot: filepath.Join(dir, "host"), DriverRoot: "/run/nvidia/driver"}
	w.reconciler = &reconciler{
		cfg: cfg, log: logr.Discard(), library: w.driver,
		nodes: deviceNodes{CapabilityNodes: host.CapabilityNodes{
			Proc: cfg.Proc, Host: cfg.HostRoot, Driver: cfg.onHost(cfg.DriverRoot), System: w.devices,
		}},
	}
	w.layout.recovered = true
	w.write("Character devices:\n236 nvidia-caps\n", "devices")
	w.write(fmt.Sprintf("GPU UUID: %s\nDevice Minor: 3\n", w.gpu), "driver/nvidia/gpus/0000:07:00.0/information")
	if err := errors.Join(os.MkdirAll(cfg.onHost("dev"), 0o700), os.MkdirAll(cfg.onHost("/run/nvidia/driver/dev"), 0o700)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *nodesTest) write(text, path string) {
	w.Helper()
	path = filepath.Join(w.cfg.Proc, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		w.Fatal(err)
	}
}

// createInstance creates an instance with its compute instance, and the driver's access files. It returns
// the observed GPU.
func (w *nodesTest) createInstance(at nvml.Placement, minor int) v1alpha1.ObservedGPU {
	w.Helper()
	profiles, err := w.driver.Profiles(w.gpu)
	if err != nil {
		w.Fatal(err)
	}
	for _, profile := range profiles {
		if profile.Memory != at.Size || profile.Attribute != "" {
			continue
		}
		instance, err := w.driver.CreateInstance(w.gpu, profile.ID, at)
		if err != nil {
			w.Fatal(err)
		}
		compute, err := w.driver.CreateComputeInstance(w.gpu, instance.ID)
		if err != nil {
			w.Fatal(err)
		}
		folder := fmt.Sprintf("driver/nvidia/capabilities/gpu3/mig/gi%d", instance.ID)
		for i, file := range []string{"access", fmt.Sprintf("ci%d/access", compute.ID)} {
			w.write(fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor+i), filepath.Join(folder, file))
		}
		return newObservedGPU(v1alpha1.GPUUUID(w.gpu), compute.UUID)
	}
	w.Fatalf("no profile of %d slices", at.Size)
	return v1alpha1.ObservedGPU{}
}

// nodeNames returns the device nodes below the host's root.
func (w *nodesTest) nodeNames() (names []string) {
	for _, dev := range []string{"dev", "run/nvidia/driver/dev"} {
		files, _ := os.ReadDir(w.cfg.onHost(dev + "/nvidia-caps"))
		for _, file := range files {
			device := w.devices[w.cfg.onHost(filepath.Join(dev, "nvidia-caps", file.Name()))]
			names = append(names, fmt.Sprintf("%s/%s %d:%d", dev, file.Name(), unix.Major(device), unix.Minor(device)))
		}
	}
	return names
}

// The device plugin is told of new MIG devices only once containers can open them. Guards invariant 7 of
// the design: a pod that got a device without its nodes would fail.
func TestDeviceNodesAreMadeBeforeDevicePluginIsTold(t *testing.T) {
	w := newNodesTest(t)
	w.plugin = devicePlugin{Daemon: host.Daemon{Proc: w.cfg.Proc, Command: "nvidia-device-plugin"}, stateDir: t.TempDir()}
	if err := w.plugin.load(); err != nil {
		t.Fatal(err)
	}
	o := newObservation(1, w.createInstance(nvml.Placement{Start: 0, Size: 4}, 66))
	w.write("Character devices:\n", "devices")
	err := w.reconcileOffer(o)
	if !errors.Is(err, host.ErrDeviceNodes) || len(w.nodeNames()) > 0 {
		t.Fatalf("%v, %v", err, w.nodeNames())
	}
	w.write("Character devices:\n236 nvidia-caps\n", "devices")
	// No plugin runs, so that the error shows that the agent looked for one.
	if err := w.reconcileOffer(o); !errors.Is(err, host.ErrDaemonNotFound) {
		t.Errorf("%v", err)
	}
	want := []string{
		"dev/nvidia-cap66 236:66", "dev/nvidia-cap67 236:67",
		"run/nvidia/driver/dev/nvidia-cap66 236:66", "run/nvidia/driver/dev/nvidia-cap67 236:67",
	}
	if diff := cmp.Diff(want, w.nodeNames()); diff != "" {
		t.Error(diff)
	}
}

// Device nodes that another program removed are made again within a minute, and those of a layout that
// changed at once, also if the devices have the same UUIDs.
func TestDeviceNodesAreVerifiedAgain(t *testing.T) {
	w := newNodesTest(t)
	o := newObservation(1, w.createInstance(nvml.Placement{Start: 0, Size: 4}, 66))
	remove := func() {
		t.Helper()
		if err := os.RemoveAll(w.cfg.onHost("dev/nvidia-caps")); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want int) {
		t.Helper()
		if err := w.reconcileDeviceNodes(o); err != nil || len(w.nodeNames()) != want {
			t.Errorf("%s: %v, %v", what, err, w.nodeNames())
		}
	}
	check("first", 4)
	remove()
	check("within the minute", 2)
	w.nodes.verifyAt = time.Now().Add(-time.Second)
	check("after a minute", 4)
	remove()
	w.nodes.invalidate()
	check("after a change", 4)
}

// The agent makes no device nodes for a GPU that another program partitions, or that does not respond.
func TestDeviceNodesOnlyOfOwnGPUs(t *testing.T) {
	w := newNodesTest(t)
	gpu := w.createInstance(nvml.Placement{Start: 0, Size: 4}, 66)
	foreign := newObservation(1, gpu)
	foreign.node.Spec.GPUs = nil
	lost := newObservation(1, gpu)
	lost.gpus[0].Health = v1alpha1.GPULost
	beside := newObservation(1, gpu)
	beside.conflicts = []host.ConflictingManager{{Name: "m"}}
	for name, o := range map[string]observation{"not in the spec": foreign, "lost": lost, "beside another manager": beside, "unknown": newObservation(1)} {
		if err := w.reconcileDeviceNodes(o); err != nil || len(w.nodeNames()) > 0 {
			t.Errorf("%s: %v, %v", name, err, w.nodeNames())
		}
	}
}
