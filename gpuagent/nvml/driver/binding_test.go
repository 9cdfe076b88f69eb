// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// The C library and the file that it opens in place of /dev/nvidia0.
const (
	libraryPathVariable = "SLUICE_TEST_NVML_LIBRARY"
	deviceVariable      = "SLUICE_TEST_NVML_DEVICE"
)

// TestRealBinding tests the real binding on an old C library, in a process of its own: errors below
// the binding end the process, and a used library stays loaded.
func TestRealBinding(t *testing.T) {
	if path := os.Getenv(libraryPathVariable); path != "" {
		testOldLibrary(t, path)
		return
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler on this machine")
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if out, err := exec.CommandContext(t.Context(), compiler, "-shared", "-fPIC", "-o", path, "testdata/nvml.c").CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, out)
	}
	device := filepath.Join(t.TempDir(), "nvidia0")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this test itself
	child.Env = append(os.Environ(), libraryPathVariable+"="+path, deviceVariable+"="+device)
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func testOldLibrary(t *testing.T, path string) {
	l := New(Config{Path: path})
	if _, err := l.GPUs(); err == nil { // the process is still alive
		t.Error("GPUs before Init")
	}
	for range 2 { // with a Shutdown in between
		if err := l.Init(); err != nil {
			t.Fatal(err)
		}
		testReads(t, l)
		testMissingFunctions(t, l)
		testNoDescriptorIsLeft(t, l)
	}
}

// testNoDescriptorIsLeft checks that no descriptor of the GPU's device node is open during a reset and after
// Shutdown: the driver refuses to reset a GPU that is open, and cannot be unloaded.
func testNoDescriptorIsLeft(t *testing.T, l nvml.Library) {
	t.Helper()
	device := os.Getenv(deviceVariable)
	descriptors := func() (open []string) {
		links, err := filepath.Glob("/proc/self/fd/*")
		if err != nil || len(links) == 0 {
			t.Fatalf("%v, %v", links, err)
		}
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && target == device {
				open = append(open, link)
			}
		}
		return open
	}
	requireEqual(t, len(descriptors()), 1)
	// The child of this process sees the descriptors of its parent, and nvidia-smi refuses a GPU in use.
	command, _ := fakeNvidiaSMI(t, fmt.Sprintf("! ls -l /proc/$PPID/fd | grep -q %s || { echo In use by another client; exit 255; }", device))
	l.(*library).config.ResetCommand = command
	if err := l.Reset(a30UUID); err != nil {
		t.Errorf("reset: %v", err)
	}
	requireEqual(t, len(descriptors()), 1)
	if err := l.Shutdown(); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, len(descriptors()), 0)
}

const a30UUID = "GPU-a30"

func testReads(t *testing.T, l nvml.Library) {
	t.Helper()
	check := func(want any) func(got any, err error) {
		return func(got any, err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
			requireEqual(t, got, want)
		}
	}
	version, err := l.DriverVersion()
	check("470.57.02")(version, err)
	gpus, err := l.GPUs()
	check([]nvml.GPU{{UUID: a30UUID, Name: "NVIDIA A30", PCIDevice: 0x20b710de, MemoryMiB: 24576}})(gpus, err)
	memory, err := l.Memory(a30UUID)
	check(nvml.Memory{TotalMiB: 24576, UsedMiB: 1024})(memory, err)
	profiles, err := l.Profiles(a30UUID)
	check([]nvml.Profile{
		{ID: 14, Compute: 1, Memory: 1, Starts: []int{0, 1, 2, 3}, Max: 4, MemoryMiB: 5952, Multiprocessors: 14},
		{ID: 0, Compute: 4, Memory: 4, Starts: []int{0}, Max: 1, MemoryMiB: 24125, Multiprocessors: 56},
	})(profiles, err)
	instances, err := l.Instances(a30UUID)
	check([]nvml.Instance{
		{ID: 1, Profile: 14, Placement: nvml.Placement{Start: 1, Size: 1}},
		{ID: 2, Profile: 14, Placement: nvml.Placement{Start: 2, Size: 1}},
		{ID: 3, Profile: 14, Placement: nvml.Placement{Start: 3, Size: 1}},
	})(instances, err)
	compute, err := l.ComputeInstances(a30UUID, 2)
	check([]nvml.ComputeInstance{{UUID: "MIG-2", Slices: 1}})(compute, err)
	processes, err := l.Processes(a30UUID)
	check([]nvml.Process{
		{PID: 100, MemoryMiB: 0, Instance: 3},
		{PID: 101, MemoryMiB: 1024, Instance: 2},
		{PID: 102, MemoryMiB: nvml.UnknownMiB, Instance: 1},
	})(processes, err)
	since := time.UnixMicro(1_000_000)
	samples, err := l.ProcessUtilization(a30UUID, since)
	check([]nvml.ProcessSample{{PID: 100, At: since.Add(time.Millisecond), SM: 42}})(samples, err)
}

// testMissingFunctions calls functions that the library lacks. Without the look-up before, each
// would end the process.
func testMissingFunctions(t *testing.T, l nvml.Library) {
	t.Helper()
	_, err := l.Utilization(a30UUID)
	requireError(t, err, nvml.ErrNotSupported)
	_, err = l.RemainingCapacity(a30UUID, 14)
	requireError(t, err, nvml.ErrNotSupported)
	_, err = l.CreateInstance(a30UUID, 14, nvml.Placement{Start: 0, Size: 1})
	requireError(t, err, nvml.ErrNotSupported)
	requireError(t, l.DestroyInstance(a30UUID, 1), nvml.ErrNotSupported)
	_, err = l.SetMIGMode(a30UUID, nvml.Disabled)
	requireError(t, err, nvml.ErrNotSupported)
	requireError(t, l.DestroyInstance(a30UUID, 9), nvml.ErrNotFound)
	_, err = l.Memory("GPU-other")
	requireError(t, err, nvml.ErrNotFound)
}
