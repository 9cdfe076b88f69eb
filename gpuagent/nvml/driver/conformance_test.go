// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/conformance"
	"sluice.dev/gpuagent/nvml/simulator"
)

var nextID atomic.Int64

// newDGX returns go-nvml's mock of eight GPUs, with functions for which the mock has only data:
// instances by identifier, and the MIG device of a compute instance.
func newDGX() *dgxa100.Server {
	server := dgxa100.New()
	for _, it := range server.Devices {
		d := it.(*dgxa100.Device)
		create := d.CreateGpuInstanceWithPlacementFunc
		d.CreateGpuInstanceWithPlacementFunc = func(info *gonvml.GpuInstanceProfileInfo, at *gonvml.GpuInstancePlacement) (gonvml.GpuInstance,
			gonvml.Return,
		) {
			made, ret := create(info, at)
			mockComputeInstances(made.(*dgxa100.GpuInstance))
			return made, ret
		}
		d.GetGpuInstanceByIdFunc = func(id int) (gonvml.GpuInstance, gonvml.Return) {
			d.RLock()
			defer d.RUnlock()
			for gi := range d.GpuInstances {
				if gi.Info.Id == uint32(id) {
					return gi, gonvml.SUCCESS
				}
			}
			return nil, gonvml.ERROR_NOT_FOUND
		}
	}
	return server
}

func mockComputeInstances(gi *dgxa100.GpuInstance) {
	create := gi.CreateComputeInstanceFunc
	gi.CreateComputeInstanceFunc = func(info *gonvml.ComputeInstanceProfileInfo) (gonvml.ComputeInstance, gonvml.Return) {
		made, ret := create(info)
		uuid := fmt.Sprintf("MIG-%08d-0000-0000-0000-000000000000", nextID.Add(1))
		made.(*dgxa100.ComputeInstance).Info.Device = &mock.Device{
			GetUUIDFunc: func() (string, gonvml.Return) { return uuid, gonvml.SUCCESS },
		}
		return made, ret
	}
	gi.GetComputeInstanceByIdFunc = func(id int) (gonvml.ComputeInstance, gonvml.Return) {
		gi.RLock()
		defer gi.RUnlock()
		for ci := range gi.ComputeInstances {
			if ci.Info.Id == uint32(id) {
				return ci, gonvml.SUCCESS
			}
		}
		return nil, gonvml.ERROR_NOT_FOUND
	}
}

// TestConformance runs the suite on the driver over go-nvml's mock, as far as the mock goes.
func TestConformance(t *testing.T) {
	tally := conformance.Run(t, conformance.Target{
		Name: "dgxa100",
		New: func(*testing.T) conformance.Node {
			return conformance.Node{Library: newLibrary(newDGX(), Config{})}
		},
		Lacks: map[conformance.Feature]string{
			conformance.Refusals:    "the mock creates instances at any place, also over others",
			conformance.Guards:      "the mock destroys instances with all that is in them",
			conformance.ModeGuards:  "the mock creates instances in any mode, and keeps them when the mode changes",
			conformance.Identifiers: "the mock has the profiles' indices for their identifiers",
			conformance.Capacity:    "the mock has no remaining capacity",
			conformance.Processes:   "the mock has no processes",
			conformance.Utilization: "the mock has no utilization",
			conformance.Reset:       "the mock cannot be reset",
		},
	})
	if tally.Failed > 0 || tally.Passed < 25 {
		t.Errorf("%+v; want none broken and at least 25 kept", tally)
	}
}

// TestConformanceOverSimulator runs the whole suite on the driver over a simulated node. The
// binding behaves like the real one: lists panic, indices are not identifiers, processes are in two
// lists. A script in place of nvidia-smi resets the node's GPUs. The GPU models cover each number
// of slices and each way to change the mode.
func TestConformanceOverSimulator(t *testing.T) {
	for _, model := range []string{"A100-40GB", "A30", "H100-80GB", "B200-180GB", "RTX-PRO-6000"} {
		tally := conformance.Run(t, conformance.Target{Name: model, New: func(t *testing.T) conformance.Node {
			node, err := simulator.New(simulator.Config{
				Seed: t.Name(), GPUs: []simulator.GPU{{Model: model}, {Model: model}, {Model: "T4"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return conformance.Node{
				Library: newLibrary(newFakeBinding(node.Open()), Config{ResetCommand: fakeResetCommand(t, node)}),
				Attach:  func(pid uint32, device string, memoryMiB int64) error { return node.Attach(pid, device, memoryMiB, 50) },
				Detach:  node.Detach,
			}
		}})
		if tally.Skipped > 0 || tally.Failed > 0 {
			t.Errorf("%s: %+v; want all kept and none left out", model, tally)
		}
	}
}

// fakeResetCommand returns a script in place of nvidia-smi that makes this process reset a GPU of a
// node through two pipes.
func fakeResetCommand(t *testing.T, node *simulator.Node) string {
	t.Helper()
	dir := t.TempDir()
	pipe := func(name string) *os.File {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	asked, told := pipe("asked"), pipe("told")
	var answering sync.WaitGroup
	t.Cleanup(func() {
		_ = asked.Close()
		answering.Wait()
		_ = told.Close()
	})
	library := node.Open()
	if err := library.Init(); err != nil {
		t.Fatal(err)
	}
	answering.Go(func() {
		for questions := bufio.NewScanner(asked); questions.Scan(); {
			gpu := questions.Text()
			err := library.Reset(gpu)
			switch {
			case errors.Is(err, nvml.ErrInUse):
				_, _ = fmt.Fprintf(told, "255 The following GPUs could not be reset: GPU %s: In use by another client\n", gpu)
			case err != nil:
				_, _ = fmt.Fprintf(told, "255 %v\n", err)
			default:
				_, _ = fmt.Fprintf(told, "0 GPU %s was successfully reset.\n", gpu)
			}
		}
	})
	command := filepath.Join(dir, "nvidia-smi")
	script := fmt.Sprintf("#!/bin/sh\ncd %q && echo \"$3\" >asked && read -r status text <told && echo \"$text\" && exit $status\n", dir)
	if err := os.WriteFile(command, []byte(script), 0o700); err != nil { //nolint:gosec // a script is executable
		t.Fatal(err)
	}
	return command
}

// fakeBinding implements go-nvml's interface with a library.
type fakeBinding struct {
	mock.Interface
	nvml nvml.Library

	mu      sync.Mutex
	devices map[string]*mock.Device
	samples atomic.Int64 // allocated and not freed
}

func toReturn(err error) gonvml.Return {
	var code nvml.Error
	switch {
	case err == nil:
		return gonvml.SUCCESS
	case errors.As(err, &code):
		return gonvml.Return(code)
	default:
		return gonvml.ERROR_UNKNOWN
	}
}

func newFakeBinding(library nvml.Library) *fakeBinding {
	b := &fakeBinding{nvml: library, devices: map[string]*mock.Device{}}
	b.ExtensionsFunc = func() gonvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return nil }}
	}
	b.InitFunc = func() gonvml.Return { return toReturn(library.Init()) }
	b.ShutdownFunc = func() gonvml.Return { return toReturn(library.Shutdown()) }
	b.SystemGetDriverVersionFunc = func() (string, gonvml.Return) {
		version, err := library.DriverVersion()
		return version, toReturn(err)
	}
	b.DeviceGetCountFunc = func() (int, gonvml.Return) {
		gpus, err := library.GPUs()
		return len(gpus), toReturn(err)
	}
	b.DeviceGetHandleByIndexFunc = func(index int) (gonvml.Device, gonvml.Return) {
		return b.findDevice(func(g nvml.GPU) bool { return g.Index == index })
	}
	b.DeviceGetHandleByUUIDFunc = func(uuid string) (gonvml.Device, gonvml.Return) {
		return b.findDevice(func(g nvml.GPU) bool { return g.UUID == uuid })
	}
	b.GpmSampleAllocFunc = func() (gonvml.GpmSample, gonvml.Return) {
		b.samples.Add(1)
		return &fakeSample{GpmSample: mock.GpmSample{FreeFunc: func() gonvml.Return { b.samples.Add(-1); return gonvml.SUCCESS }}}, gonvml.SUCCESS
	}
	b.GpmMetricsGetFunc = func(get *gonvml.GpmMetricsGetType) gonvml.Return {
		if get.NumMetrics != 1 || get.Metrics[0].MetricId != uint32(gonvml.GPM_METRIC_GRAPHICS_UTIL) || get.Sample1 == get.Sample2 {
			return gonvml.ERROR_INVALID_ARGUMENT
		}
		get.Metrics[0].Value = float64(get.Sample2.(*fakeSample).busy)
		return gonvml.SUCCESS
	}
	return b
}

// fakeSample is a sample of a GPU instance, with its utilization since the previous one.
type fakeSample struct {
	mock.GpmSample
	busy int
}

// mockInstanceSamples mocks the samples of a GPU's instances as on Hopper and later.
func (b *fakeBinding) mockInstanceSamples(d *mock.Device, uuid string) {
	d.GpmQueryDeviceSupportFunc = func() (support gonvml.GpmSupport, _ gonvml.Return) {
		gpus, err := b.nvml.GPUs()
		for _, gpu := range gpus {
			if model, ok := mig.ModelByPCIDevice(gpu.PCIDevice); ok && gpu.UUID == uuid && model.ModeWithoutReset {
				support.IsSupportedDevice = 1
			}
		}
		return support, toReturn(err)
	}
	d.GpmMigSampleGetFunc = func(id int, sample gonvml.GpmSample) gonvml.Return {
		busy, err := b.nvml.InstanceUtilization(uuid, uint32(id))
		sample.(*fakeSample).busy = busy
		return toReturn(err)
	}
}

func (b *fakeBinding) findDevice(which func(nvml.GPU) bool) (gonvml.Device, gonvml.Return) {
	gpus, err := b.nvml.GPUs()
	at := slices.IndexFunc(gpus, which)
	switch {
	case err != nil:
		return nil, toReturn(err)
	case at < 0:
		return nil, gonvml.ERROR_NOT_FOUND
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.devices[gpus[at].UUID] == nil {
		b.devices[gpus[at].UUID] = b.newDevice(gpus[at])
	}
	return b.devices[gpus[at].UUID], gonvml.SUCCESS
}

// shapeByIndex lists the shapes by their index in nvml.h.
var shapeByIndex = map[int]mig.Shape{
	0: {Compute: 1, Memory: 1}, 1: {Compute: 2, Memory: 2}, 2: {Compute: 3, Memory: 4}, 3: {Compute: 4, Memory: 4},
	4: {Compute: 7, Memory: 8}, 7: {Compute: 1, Memory: 1, Attribute: "+me"}, 8: {Compute: 2, Memory: 2, Attribute: "+me"},
	9: {Compute: 1, Memory: 2}, 10: {Compute: 1, Memory: 1, Attribute: "+gfx"}, 11: {Compute: 2, Memory: 2, Attribute: "+gfx"},
	12: {Compute: 4, Memory: 4, Attribute: "+gfx"}, 13: {Compute: 1, Memory: 1, Attribute: "-me"},
	14: {Compute: 2, Memory: 2, Attribute: "-me"}, 15: {Compute: 1, Memory: 1, Attribute: "+me.all"},
	16: {Compute: 2, Memory: 2, Attribute: "+me.all"},
}

func (b *fakeBinding) newDevice(gpu nvml.GPU) *mock.Device {
	l, uuid := b.nvml, gpu.UUID
	d := &mock.Device{
		GetUUIDFunc: func() (string, gonvml.Return) { return uuid, gonvml.SUCCESS },
		GetNameFunc: func() (string, gonvml.Return) { return gpu.Name, gonvml.SUCCESS },
		GetPciInfoFunc: func() (gonvml.PciInfo, gonvml.Return) {
			return gonvml.PciInfo{PciDeviceId: gpu.PCIDevice}, gonvml.SUCCESS
		},
	}
	d.GetMemoryInfoFunc = func() (gonvml.Memory, gonvml.Return) {
		m, err := l.Memory(uuid)
		return gonvml.Memory{Total: uint64(m.TotalMiB) << 20, Used: uint64(m.UsedMiB) << 20}, toReturn(err)
	}
	d.GetUtilizationRatesFunc = func() (gonvml.Utilization, gonvml.Return) {
		busy, err := l.Utilization(uuid)
		return gonvml.Utilization{Gpu: uint32(busy)}, toReturn(err)
	}
	d.GetMigModeFunc = func() (int, int, gonvml.Return) {
		current, pending, err := l.MIGMode(uuid)
		number := map[nvml.Mode]int{nvml.Disabled: gonvml.DEVICE_MIG_DISABLE, nvml.Enabled: gonvml.DEVICE_MIG_ENABLE}
		return number[current], number[pending], toReturn(err)
	}
	d.SetMigModeFunc = func(mode int) (gonvml.Return, gonvml.Return) {
		activation, err := l.SetMIGMode(uuid, mode == gonvml.DEVICE_MIG_ENABLE)
		return toReturn(activation), toReturn(err)
	}
	b.mockProcesses(d, uuid)
	b.mockInstanceSamples(d, uuid)
	b.mockProfiles(d, uuid)
	b.mockInstances(d, uuid)
	return d
}

func (b *fakeBinding) mockProcesses(d *mock.Device, uuid string) {
	all := func() ([]gonvml.ProcessInfo, gonvml.Return) {
		found, err := b.nvml.Processes(uuid)
		var list []gonvml.ProcessInfo
		for _, p := range found {
			used := uint64(math.MaxUint64)
			if p.MemoryMiB != nvml.UnknownMiB {
				used = uint64(p.MemoryMiB) << 20
			}
			list = append(list, gonvml.ProcessInfo{Pid: p.PID, UsedGpuMemory: used, GpuInstanceId: p.Instance, ComputeInstanceId: p.Compute})
		}
		return list, toReturn(err)
	}
	d.GetComputeRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc = all, all
	d.GetGraphicsRunningProcessesFunc = func() ([]gonvml.ProcessInfo, gonvml.Return) { return nil, gonvml.ERROR_NOT_SUPPORTED }
	d.GetProcessUtilizationFunc = func(uint64) ([]gonvml.ProcessUtilizationSample, gonvml.Return) {
		if _, err := b.nvml.Utilization(uuid); err != nil {
			return nil, toReturn(err)
		}
		return nil, gonvml.ERROR_NOT_FOUND
	}
}

func (b *fakeBinding) mockProfiles(d *mock.Device, uuid string) {
	d.GetGpuInstanceProfileInfoFunc = func(index int) (gonvml.GpuInstanceProfileInfo, gonvml.Return) {
		found, err := b.nvml.Profiles(uuid)
		switch {
		case err != nil:
			return gonvml.GpuInstanceProfileInfo{}, toReturn(err)
		case index >= gonvml.GPU_INSTANCE_PROFILE_COUNT:
			return gonvml.GpuInstanceProfileInfo{}, gonvml.ERROR_INVALID_ARGUMENT
		}
		shape, known := shapeByIndex[index]
		for _, p := range found {
			if known && shape == (mig.Shape{Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute}) {
				return gonvml.GpuInstanceProfileInfo{
					Id: uint32(p.ID), SliceCount: uint32(p.Compute), MultiprocessorCount: uint32(p.Multiprocessors), MemorySizeMB: uint64(p.MemoryMiB),
				}, gonvml.SUCCESS // there are none, and it counts them
			}
		}
		return gonvml.GpuInstanceProfileInfo{}, gonvml.ERROR_NOT_SUPPORTED
	}
	d.GetGpuInstancePossiblePlacementsFunc = func(info *gonvml.GpuInstanceProfileInfo) ([]gonvml.GpuInstancePlacement, gonvml.Return) {
		found, err := b.nvml.Placements(uuid, nvml.ProfileID(info.Id))
		var places []gonvml.GpuInstancePlacement
		for _, p := range found {
			places = append(places, gonvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(p.Size)})
		}
		return places, toReturn(err)
	}
	d.GetGpuInstanceRemainingCapacityFunc = func(info *gonvml.GpuInstanceProfileInfo) (int, gonvml.Return) {
		left, err := b.nvml.RemainingCapacity(uuid, nvml.ProfileID(info.Id))
		return left, toReturn(err)
	}
}

func (b *fakeBinding) mockInstances(d *mock.Device, uuid string) {
	list := func(which func(nvml.Instance) bool) ([]gonvml.GpuInstance, error) {
		found, err := b.nvml.Instances(uuid)
		var handles []gonvml.GpuInstance
		for _, it := range found {
			if which(it) {
				handles = append(handles, b.newInstance(uuid, it))
			}
		}
		return handles, err
	}
	d.GetGpuInstancesFunc = func(info *gonvml.GpuInstanceProfileInfo) ([]gonvml.GpuInstance, gonvml.Return) {
		_ = make([]int, info.InstanceCount)[0] // as the binding does
		handles, err := list(func(it nvml.Instance) bool { return uint32(it.Profile) == info.Id })
		return handles, toReturn(err)
	}
	d.GetGpuInstanceByIdFunc = func(id int) (gonvml.GpuInstance, gonvml.Return) {
		handles, err := list(func(it nvml.Instance) bool { return int(it.ID) == id })
		if err == nil && len(handles) == 0 {
			return nil, gonvml.ERROR_NOT_FOUND
		}
		return append(handles, nil)[0], toReturn(err)
	}
	d.CreateGpuInstanceWithPlacementFunc = func(info *gonvml.GpuInstanceProfileInfo, at *gonvml.GpuInstancePlacement) (gonvml.GpuInstance,
		gonvml.Return,
	) {
		made, err := b.nvml.CreateInstance(uuid, nvml.ProfileID(info.Id), nvml.Placement{Start: int(at.Start), Size: int(at.Size)})
		return b.newInstance(uuid, made), toReturn(err)
	}
}

func (b *fakeBinding) newInstance(uuid string, it nvml.Instance) *mock.GpuInstance {
	l := b.nvml
	gi := &mock.GpuInstance{
		GetInfoFunc: func() (gonvml.GpuInstanceInfo, gonvml.Return) {
			return gonvml.GpuInstanceInfo{
				Id: it.ID, ProfileId: uint32(it.Profile),
				Placement: gonvml.GpuInstancePlacement{Start: uint32(it.Placement.Start), Size: uint32(it.Placement.Size)},
			}, gonvml.SUCCESS
		},
		DestroyFunc: func() gonvml.Return { return toReturn(l.DestroyInstance(uuid, it.ID)) },
	}
	// Every number of slices is a profile here; the created one fills the instance.
	gi.GetComputeInstanceProfileInfoFunc = func(index, _ int) (gonvml.ComputeInstanceProfileInfo, gonvml.Return) {
		if index >= gonvml.COMPUTE_INSTANCE_PROFILE_COUNT {
			return gonvml.ComputeInstanceProfileInfo{}, gonvml.ERROR_INVALID_ARGUMENT
		}
		return gonvml.ComputeInstanceProfileInfo{Id: uint32(index), SliceCount: computeSlicesByIndex[index]}, gonvml.SUCCESS
	}
	gi.CreateComputeInstanceFunc = func(*gonvml.ComputeInstanceProfileInfo) (gonvml.ComputeInstance, gonvml.Return) {
		made, err := l.CreateComputeInstance(uuid, it.ID)
		return b.newComputeInstance(uuid, it.ID, made), toReturn(err)
	}
	gi.GetComputeInstancesFunc = func(info *gonvml.ComputeInstanceProfileInfo) ([]gonvml.ComputeInstance, gonvml.Return) {
		_ = make([]int, info.InstanceCount)[0] // as the binding does
		found, err := l.ComputeInstances(uuid, it.ID)
		var handles []gonvml.ComputeInstance
		for _, ci := range found {
			handles = append(handles, b.newComputeInstance(uuid, it.ID, ci))
		}
		return handles, toReturn(err)
	}
	gi.GetComputeInstanceByIdFunc = func(id int) (gonvml.ComputeInstance, gonvml.Return) {
		found, err := l.ComputeInstances(uuid, it.ID)
		for _, ci := range found {
			if int(ci.ID) == id {
				return b.newComputeInstance(uuid, it.ID, ci), gonvml.SUCCESS
			}
		}
		if err == nil {
			err = nvml.ErrNotFound
		}
		return nil, toReturn(err)
	}
	return gi
}

// computeSlicesByIndex lists the slices of compute instances by the index of their profile.
var computeSlicesByIndex = []uint32{1, 2, 3, 4, 7, 8, 6, 1}

func (b *fakeBinding) newComputeInstance(uuid string, instance uint32, it nvml.ComputeInstance) *mock.ComputeInstance {
	return &mock.ComputeInstance{
		GetInfoFunc: func() (gonvml.ComputeInstanceInfo, gonvml.Return) {
			device := &mock.Device{GetUUIDFunc: func() (string, gonvml.Return) { return it.UUID, gonvml.SUCCESS }}
			profile := slices.Index(computeSlicesByIndex, uint32(it.Slices))
			return gonvml.ComputeInstanceInfo{Device: device, Id: it.ID, ProfileId: uint32(profile)}, gonvml.SUCCESS
		},
		DestroyFunc: func() gonvml.Return { return toReturn(b.nvml.DestroyComputeInstance(uuid, instance, it.ID)) },
	}
}
