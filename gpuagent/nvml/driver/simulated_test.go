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
	"syscall"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/conformance"
	"sluice.dev/gpuagent/nvml/simulator"
)

// TestConformanceOverSimulator holds the driver to the whole suite: over a binding that has
// the real one's manners (lists that panic, indices that are no identifiers, processes in two
// lists), and behind it a simulated node, which nvidia-smi's stand-in resets. The boards are
// one of each number of slices and each way to change the mode.
func TestConformanceOverSimulator(t *testing.T) {
	for _, board := range []string{"A100-40GB", "A30", "H100-80GB", "B200-180GB"} {
		tally := conformance.Run(t, conformance.Target{Name: board, New: func(t *testing.T) conformance.Node {
			node, err := simulator.New(simulator.Config{
				Seed: t.Name(), GPUs: []simulator.GPU{{Board: board}, {Board: board}, {Board: "T4"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return conformance.Node{
				Library: newLibrary(bindingOf(node.Open()), Config{ResetCommand: resetting(t, node)}),
				Attach:  func(pid uint32, device string, memoryMiB int64) error { return node.Attach(pid, device, memoryMiB, 50) },
				Detach:  node.Detach,
			}
		}})
		if tally.LeftOut > 0 || tally.Broken > 0 {
			t.Errorf("%s: %+v; want all kept and none left out", board, tally)
		}
	}
}

// resetting is a script in nvidia-smi's place, which has this process reset a GPU of a node:
// it asks through one pipe and is told through another.
func resetting(t *testing.T, node *simulator.Node) string {
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

// binding is go-nvml's interface on a library.
type binding struct {
	mock.Interface
	nvml nvml.Library

	mu      sync.Mutex
	devices map[string]*mock.Device
}

func returned(err error) gonvml.Return {
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

func bindingOf(library nvml.Library) *binding {
	b := &binding{nvml: library, devices: map[string]*mock.Device{}}
	b.ExtensionsFunc = func() gonvml.ExtendedInterface {
		return &mock.ExtendedInterface{LookupSymbolFunc: func(string) error { return nil }}
	}
	b.InitFunc = func() gonvml.Return { return returned(library.Init()) }
	b.ShutdownFunc = func() gonvml.Return { return returned(library.Shutdown()) }
	b.SystemGetDriverVersionFunc = func() (string, gonvml.Return) {
		version, err := library.DriverVersion()
		return version, returned(err)
	}
	b.DeviceGetCountFunc = func() (int, gonvml.Return) {
		gpus, err := library.GPUs()
		return len(gpus), returned(err)
	}
	b.DeviceGetHandleByIndexFunc = func(index int) (gonvml.Device, gonvml.Return) {
		return b.find(func(g nvml.GPU) bool { return g.Index == index })
	}
	b.DeviceGetHandleByUUIDFunc = func(uuid string) (gonvml.Device, gonvml.Return) {
		return b.find(func(g nvml.GPU) bool { return g.UUID == uuid })
	}
	return b
}

func (b *binding) find(which func(nvml.GPU) bool) (gonvml.Device, gonvml.Return) {
	gpus, err := b.nvml.GPUs()
	at := slices.IndexFunc(gpus, which)
	switch {
	case err != nil:
		return nil, returned(err)
	case at < 0:
		return nil, gonvml.ERROR_NOT_FOUND
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.devices[gpus[at].UUID] == nil {
		b.devices[gpus[at].UUID] = b.device(gpus[at])
	}
	return b.devices[gpus[at].UUID], gonvml.SUCCESS
}

// indices are where nvml.h has the profiles of a shape.
var indices = map[int]mig.Shape{
	0: {Compute: 1, Memory: 1}, 1: {Compute: 2, Memory: 2}, 2: {Compute: 3, Memory: 4}, 3: {Compute: 4, Memory: 4},
	4: {Compute: 7, Memory: 8}, 7: {Compute: 1, Memory: 1, Attribute: "+me"}, 8: {Compute: 2, Memory: 2, Attribute: "+me"},
	9: {Compute: 1, Memory: 2},
}

func (b *binding) device(gpu nvml.GPU) *mock.Device {
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
		return gonvml.Memory{Total: uint64(m.TotalMiB) << 20, Used: uint64(m.UsedMiB) << 20}, returned(err)
	}
	d.GetUtilizationRatesFunc = func() (gonvml.Utilization, gonvml.Return) {
		busy, err := l.Utilisation(uuid)
		return gonvml.Utilization{Gpu: uint32(busy)}, returned(err)
	}
	d.GetMigModeFunc = func() (int, int, gonvml.Return) {
		current, pending, err := l.MIGMode(uuid)
		number := map[nvml.Mode]int{nvml.Disabled: gonvml.DEVICE_MIG_DISABLE, nvml.Enabled: gonvml.DEVICE_MIG_ENABLE}
		return number[current], number[pending], returned(err)
	}
	d.SetMigModeFunc = func(mode int) (gonvml.Return, gonvml.Return) {
		activation, err := l.SetMIGMode(uuid, mode == gonvml.DEVICE_MIG_ENABLE)
		return returned(activation), returned(err)
	}
	b.processes(d, uuid)
	b.profiles(d, uuid)
	b.instances(d, uuid)
	return d
}

func (b *binding) processes(d *mock.Device, uuid string) {
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
		return list, returned(err)
	}
	d.GetComputeRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc = all, all
	d.GetGraphicsRunningProcessesFunc = func() ([]gonvml.ProcessInfo, gonvml.Return) { return nil, gonvml.ERROR_NOT_SUPPORTED }
	d.GetProcessUtilizationFunc = func(uint64) ([]gonvml.ProcessUtilizationSample, gonvml.Return) {
		if _, err := b.nvml.Utilisation(uuid); err != nil {
			return nil, returned(err)
		}
		return nil, gonvml.ERROR_NOT_FOUND
	}
}

func (b *binding) profiles(d *mock.Device, uuid string) {
	d.GetGpuInstanceProfileInfoFunc = func(index int) (gonvml.GpuInstanceProfileInfo, gonvml.Return) {
		found, err := b.nvml.Profiles(uuid)
		switch {
		case err != nil:
			return gonvml.GpuInstanceProfileInfo{}, returned(err)
		case index >= gonvml.GPU_INSTANCE_PROFILE_COUNT:
			return gonvml.GpuInstanceProfileInfo{}, gonvml.ERROR_INVALID_ARGUMENT
		}
		shape, known := indices[index]
		for _, p := range found {
			if known && shape == (mig.Shape{Compute: p.Compute, Memory: p.Memory, Attribute: p.Attribute}) {
				return gonvml.GpuInstanceProfileInfo{
					Id: uint32(p.ID), SliceCount: uint32(p.Compute), MultiprocessorCount: uint32(p.Multiprocessors), MemorySizeMB: uint64(p.MemoryMiB),
				}, gonvml.SUCCESS // of which there are none, it counts
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
		return places, returned(err)
	}
	d.GetGpuInstanceRemainingCapacityFunc = func(info *gonvml.GpuInstanceProfileInfo) (int, gonvml.Return) {
		left, err := b.nvml.RemainingCapacity(uuid, nvml.ProfileID(info.Id))
		return left, returned(err)
	}
}

func (b *binding) instances(d *mock.Device, uuid string) {
	list := func(which func(nvml.Instance) bool) ([]gonvml.GpuInstance, error) {
		found, err := b.nvml.Instances(uuid)
		var handles []gonvml.GpuInstance
		for _, it := range found {
			if which(it) {
				handles = append(handles, b.instance(uuid, it))
			}
		}
		return handles, err
	}
	d.GetGpuInstancesFunc = func(info *gonvml.GpuInstanceProfileInfo) ([]gonvml.GpuInstance, gonvml.Return) {
		_ = make([]int, info.InstanceCount)[0] // as the binding does
		handles, err := list(func(it nvml.Instance) bool { return uint32(it.Profile) == info.Id })
		return handles, returned(err)
	}
	d.GetGpuInstanceByIdFunc = func(id int) (gonvml.GpuInstance, gonvml.Return) {
		handles, err := list(func(it nvml.Instance) bool { return int(it.ID) == id })
		if err == nil && len(handles) == 0 {
			return nil, gonvml.ERROR_NOT_FOUND
		}
		return append(handles, nil)[0], returned(err)
	}
	d.CreateGpuInstanceWithPlacementFunc = func(info *gonvml.GpuInstanceProfileInfo, at *gonvml.GpuInstancePlacement) (gonvml.GpuInstance, gonvml.Return) {
		made, err := b.nvml.CreateInstance(uuid, nvml.ProfileID(info.Id), nvml.Placement{Start: int(at.Start), Size: int(at.Size)})
		return b.instance(uuid, made), returned(err)
	}
}

func (b *binding) instance(uuid string, it nvml.Instance) *mock.GpuInstance {
	l := b.nvml
	gi := &mock.GpuInstance{
		GetInfoFunc: func() (gonvml.GpuInstanceInfo, gonvml.Return) {
			return gonvml.GpuInstanceInfo{
				Id: it.ID, ProfileId: uint32(it.Profile),
				Placement: gonvml.GpuInstancePlacement{Start: uint32(it.Placement.Start), Size: uint32(it.Placement.Size)},
			}, gonvml.SUCCESS
		},
		DestroyFunc: func() gonvml.Return { return returned(l.DestroyInstance(uuid, it.ID)) },
	}
	// Every number of slices is a profile here; what is made is what fills the instance.
	gi.GetComputeInstanceProfileInfoFunc = func(index, _ int) (gonvml.ComputeInstanceProfileInfo, gonvml.Return) {
		if index >= gonvml.COMPUTE_INSTANCE_PROFILE_COUNT {
			return gonvml.ComputeInstanceProfileInfo{}, gonvml.ERROR_INVALID_ARGUMENT
		}
		return gonvml.ComputeInstanceProfileInfo{Id: uint32(index), SliceCount: computeSlices[index]}, gonvml.SUCCESS
	}
	gi.CreateComputeInstanceFunc = func(*gonvml.ComputeInstanceProfileInfo) (gonvml.ComputeInstance, gonvml.Return) {
		made, err := l.CreateComputeInstance(uuid, it.ID)
		return b.compute(uuid, it.ID, made), returned(err)
	}
	gi.GetComputeInstancesFunc = func(info *gonvml.ComputeInstanceProfileInfo) ([]gonvml.ComputeInstance, gonvml.Return) {
		_ = make([]int, info.InstanceCount)[0] // as the binding does
		found, err := l.ComputeInstances(uuid, it.ID)
		var handles []gonvml.ComputeInstance
		for _, ci := range found {
			handles = append(handles, b.compute(uuid, it.ID, ci))
		}
		return handles, returned(err)
	}
	gi.GetComputeInstanceByIdFunc = func(id int) (gonvml.ComputeInstance, gonvml.Return) {
		found, err := l.ComputeInstances(uuid, it.ID)
		for _, ci := range found {
			if int(ci.ID) == id {
				return b.compute(uuid, it.ID, ci), gonvml.SUCCESS
			}
		}
		if err == nil {
			err = nvml.ErrNotFound
		}
		return nil, returned(err)
	}
	return gi
}

// computeSlices are the slices of compute instances, by the index of their profile.
var computeSlices = []uint32{1, 2, 3, 4, 7, 8, 6, 1}

func (b *binding) compute(uuid string, instance uint32, it nvml.ComputeInstance) *mock.ComputeInstance {
	return &mock.ComputeInstance{
		GetInfoFunc: func() (gonvml.ComputeInstanceInfo, gonvml.Return) {
			device := &mock.Device{GetUUIDFunc: func() (string, gonvml.Return) { return it.UUID, gonvml.SUCCESS }}
			profile := slices.Index(computeSlices, uint32(it.Slices))
			return gonvml.ComputeInstanceInfo{Device: device, Id: it.ID, ProfileId: uint32(profile)}, gonvml.SUCCESS
		},
		DestroyFunc: func() gonvml.Return { return returned(b.nvml.DestroyComputeInstance(uuid, instance, it.ID)) },
	}
}
