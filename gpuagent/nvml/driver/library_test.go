// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/gpuagent/nvml"
)

// newInitializedLibrary returns an initialized driver on a mock, and the mock's first GPU.
func newInitializedLibrary(t *testing.T) (*library, *dgxa100.Server, *dgxa100.Device) {
	t.Helper()
	server := newDGX()
	l := newLibrary(server, Config{})
	if err := l.Init(); err != nil {
		t.Fatal(err)
	}
	return l, server, server.Devices[0].(*dgxa100.Device)
}

func requireError(t *testing.T, err error, want nvml.Error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func requireEqual(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The binding returns (activation, error of the call), in the reverse order of all its other
// functions.
func TestSetMIGModeSeparatesActivationError(t *testing.T) {
	for _, c := range []struct {
		became, ret     gonvml.Return
		activation, err error
	}{
		{gonvml.SUCCESS, gonvml.SUCCESS, nil, nil},
		{gonvml.ERROR_IN_USE, gonvml.SUCCESS, nvml.ErrInUse, nil},
		{gonvml.ERROR_RESET_REQUIRED, gonvml.SUCCESS, nvml.ErrResetRequired, nil},
		{gonvml.SUCCESS, gonvml.ERROR_NO_PERMISSION, nil, nvml.ErrNoPermission},
		{gonvml.ERROR_IN_USE, gonvml.ERROR_NOT_SUPPORTED, nil, nvml.ErrNotSupported},
	} {
		l, _, d := newInitializedLibrary(t)
		var asked int
		d.SetMigModeFunc = func(mode int) (gonvml.Return, gonvml.Return) { asked = mode; return c.became, c.ret }
		activation, err := l.SetMIGMode(d.UUID, nvml.Enabled)
		if !errors.Is(activation, c.activation) || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) ||
			(activation == nil) != (c.activation == nil) {
			t.Errorf("%v, %v: got %v, %v, want %v, %v", c.became, c.ret, activation, err, c.activation, c.err)
		}
		if asked != gonvml.DEVICE_MIG_ENABLE {
			t.Errorf("requested mode %d", asked)
		}
	}
}

// The binding uses &list[0] of a list with the driver's count, which may be zero or too low.
func TestListsHaveMinimumCapacity(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	info := d.GetGpuInstanceProfileInfoFunc
	d.GetGpuInstanceProfileInfoFunc = func(i int) (gonvml.GpuInstanceProfileInfo, gonvml.Return) {
		it, ret := info(i)
		it.InstanceCount = 0
		return it, ret
	}
	list := d.GetGpuInstancesFunc
	d.GetGpuInstancesFunc = func(info *gonvml.GpuInstanceProfileInfo) ([]gonvml.GpuInstance, gonvml.Return) {
		_ = make([]int, info.InstanceCount)[0] // as the binding does
		return list(info)
	}
	if _, err := l.SetMIGMode(d.UUID, nvml.Enabled); err != nil {
		t.Fatal(err)
	}
	made, err := l.CreateInstance(d.UUID, 0, nvml.Placement{Start: 3, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Instances(d.UUID)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, []nvml.Instance{made})
}

// The index at which a profile is found is not its identifier, which all other calls take.
func TestProfilesAreAddressedByIdentifier(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	ids := map[int]uint32{0: 19, 1: 14, 2: 9, 3: 5, 4: 0, 7: 20, 9: 15}
	info, places := d.GetGpuInstanceProfileInfoFunc, d.GetGpuInstancePossiblePlacementsFunc
	d.GetGpuInstanceProfileInfoFunc = func(i int) (gonvml.GpuInstanceProfileInfo, gonvml.Return) {
		it, ret := info(i)
		it.Id = ids[i]
		return it, ret
	}
	d.GetGpuInstancePossiblePlacementsFunc = func(info *gonvml.GpuInstanceProfileInfo) ([]gonvml.GpuInstancePlacement, gonvml.Return) {
		for index, id := range ids {
			if id == info.Id {
				return places(&gonvml.GpuInstanceProfileInfo{Id: uint32(index)})
			}
		}
		return nil, gonvml.ERROR_INVALID_ARGUMENT
	}
	got, err := l.Profiles(d.UUID)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, []nvml.Profile{
		{ID: 19, Compute: 1, Memory: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7, MemoryMiB: 4864, Multiprocessors: 14},
		{ID: 14, Compute: 2, Memory: 2, Starts: []int{0, 2, 4}, Max: 3, MemoryMiB: 9856, Multiprocessors: 28},
		{ID: 9, Compute: 3, Memory: 4, Starts: []int{0, 4}, Max: 2, MemoryMiB: 19968, Multiprocessors: 42},
		{ID: 5, Compute: 4, Memory: 4, Starts: []int{0}, Max: 1, MemoryMiB: 19968, Multiprocessors: 56},
		{ID: 0, Compute: 7, Memory: 8, Starts: []int{0}, Max: 1, MemoryMiB: 40192, Multiprocessors: 98},
		{ID: 20, Compute: 1, Memory: 1, Attribute: "+me", Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 1, MemoryMiB: 4864, Multiprocessors: 14},
		{ID: 15, Compute: 1, Memory: 2, Starts: []int{0, 2, 4, 6}, Max: 4, MemoryMiB: 9856, Multiprocessors: 14},
	})
	var asked uint32
	d.CreateGpuInstanceWithPlacementFunc = func(info *gonvml.GpuInstanceProfileInfo, _ *gonvml.GpuInstancePlacement) (gonvml.GpuInstance,
		gonvml.Return,
	) {
		asked = info.Id
		return nil, gonvml.ERROR_INSUFFICIENT_RESOURCES
	}
	_, err = l.CreateInstance(d.UUID, 9, nvml.Placement{Start: 4, Size: 4})
	requireError(t, err, nvml.ErrInsufficientResources)
	requireEqual(t, asked, uint32(9))
}

// The driver's count of an A30's profiles is wrong.
func TestProfileMaxInstances(t *testing.T) {
	places := func(size int, starts ...int) (list []nvml.Placement) {
		for _, start := range starts {
			list = append(list, nvml.Placement{Start: start, Size: size})
		}
		return list
	}
	for _, c := range []struct {
		name    string
		pci     uint32
		p       driverProfile
		want    int
		because string
	}{
		{"A30 2g", 0x20b710de, driverProfile{1, gonvml.GpuInstanceProfileInfo{SliceCount: 2, InstanceCount: 1}, places(2, 0, 2)}, 2, "the table"},
		{
			"A30 2g+me", 0x20b710de,
			driverProfile{8, gonvml.GpuInstanceProfileInfo{SliceCount: 2, InstanceCount: 4}, places(2, 0, 2)},
			1,
			"the table",
		},
		{"unknown GPU model, 1g", 0xbeef10de, driverProfile{
			0,
			gonvml.GpuInstanceProfileInfo{SliceCount: 1, InstanceCount: 1},
			places(1, 0, 1, 2, 3),
		}, 4, "the room"},
		{
			"unknown GPU model, 2g over itself", 0xbeef10de,
			driverProfile{1, gonvml.GpuInstanceProfileInfo{SliceCount: 2, InstanceCount: 9}, places(2, 0, 1, 2)},
			2, "the room",
		},
		{"unknown GPU model, 1g+me", 0xbeef10de, driverProfile{
			7,
			gonvml.GpuInstanceProfileInfo{SliceCount: 1, InstanceCount: 1},
			places(1, 0, 1, 2, 3),
		}, 1, "the driver's count"},
	} {
		l, _, d := newInitializedLibrary(t)
		d.GetPciInfoFunc = func() (gonvml.PciInfo, gonvml.Return) {
			return gonvml.PciInfo{PciDeviceId: c.pci}, gonvml.SUCCESS
		}
		l.handles.store(d.UUID, d, 1).profiles = []driverProfile{c.p}
		got, err := l.Profiles(d.UUID)
		if err != nil || len(got) != 1 || got[0].Max != c.want {
			t.Errorf("%s: %+v, %v; want %d by %s", c.name, got, err, c.want, c.because)
		}
	}
}

// A profile of a newer driver matches no request.
func TestProfilesOfNewerDriver(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	l.handles.store(d.UUID, d, 1).profiles = []driverProfile{
		{16, gonvml.GpuInstanceProfileInfo{Id: 1, SliceCount: 2}, []nvml.Placement{{Start: 0, Size: 2}}},
		{17, gonvml.GpuInstanceProfileInfo{Id: 2, SliceCount: 2}, []nvml.Placement{{Start: 0, Size: 2}}},
	}
	got, err := l.Profiles(d.UUID)
	if err != nil || len(got) != 2 || got[0].Attribute != "+me.all" || got[1].Attribute != "+unknown17" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Before 550 a driver reports no profiles while MIG mode is off. That result is not cached.
func TestProfilesOfOlderDriver(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	info := d.GetGpuInstanceProfileInfoFunc
	d.GetGpuInstanceProfileInfoFunc = func(i int) (gonvml.GpuInstanceProfileInfo, gonvml.Return) {
		if it, ret := info(i); ret == gonvml.ERROR_INVALID_ARGUMENT || d.MigMode == gonvml.DEVICE_MIG_ENABLE {
			return it, ret
		}
		return gonvml.GpuInstanceProfileInfo{}, gonvml.ERROR_NOT_SUPPORTED
	}
	got, err := l.Profiles(d.UUID)
	if err != nil || len(got) != 0 {
		t.Errorf("%+v, %v; want none, and no error", got, err)
	}
	_, err = l.Instances(d.UUID)
	requireError(t, err, nvml.ErrNotSupported)
	d.MigMode = gonvml.DEVICE_MIG_ENABLE
	got, err = l.Profiles(d.UUID)
	if err != nil || len(got) != 7 {
		t.Errorf("%+v, %v; want seven", got, err)
	}
}

// Handles are cached, and looked up again after events that may have changed their GPUs.
func TestHandleCache(t *testing.T) {
	l, server, d := newInitializedLibrary(t)
	found := 0
	find := server.DeviceGetHandleByUUIDFunc
	server.DeviceGetHandleByUUIDFunc = func(uuid string) (gonvml.Device, gonvml.Return) { found++; return find(uuid) }
	mode := d.GetMigModeFunc
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"listed twice", func() {
			_, _, _ = l.MIGMode(d.UUID)
			_, _, _ = l.MIGMode(d.UUID)
		}, 1},
		{"refused", func() {
			d.GetMigModeFunc = func() (int, int, gonvml.Return) { return 0, 0, gonvml.ERROR_NO_PERMISSION }
			_, _, _ = l.MIGMode(d.UUID)
			d.GetMigModeFunc = mode
			_, _, _ = l.MIGMode(d.UUID)
		}, 1},
		{"lost", func() {
			d.GetMigModeFunc = func() (int, int, gonvml.Return) { return 0, 0, gonvml.ERROR_GPU_IS_LOST }
			_, _, _ = l.MIGMode(d.UUID)
			d.GetMigModeFunc = mode
			_, _, _ = l.MIGMode(d.UUID)
		}, 2},
		{"mode set", func() {
			_, _ = l.SetMIGMode(d.UUID, nvml.Enabled)
			_, _, _ = l.MIGMode(d.UUID)
		}, 3},
		{"enumerated", func() {
			_, _ = l.SetMIGMode(d.UUID, nvml.Enabled)
			_, _ = l.GPUs()
			_, _, _ = l.MIGMode(d.UUID)
		}, 3},
		{"initialized again", func() {
			_ = l.Shutdown()
			_ = l.Init()
			_, _, _ = l.MIGMode(d.UUID)
		}, 4},
	} {
		step.do()
		if found != step.want {
			t.Errorf("%s: handles were found %d times, want %d", step.name, found, step.want)
		}
	}
}

// The library accepts a MIG device's UUID in place of a GPU's.
func TestMIGDeviceUUIDIsRejected(t *testing.T) {
	l, server, d := newInitializedLibrary(t)
	server.DeviceGetHandleByUUIDFunc = func(string) (gonvml.Device, gonvml.Return) { return d, gonvml.SUCCESS }
	_, err := l.Processes("MIG-00000000-0000-0000-0000-000000000000")
	requireError(t, err, nvml.ErrInvalidArgument)
}

// A handle that was found before a reset is not cached after it.
func TestHandleFromEarlierEpoch(t *testing.T) {
	l, server, d := newInitializedLibrary(t)
	find := server.DeviceGetHandleByUUIDFunc
	server.DeviceGetHandleByUUIDFunc = func(uuid string) (gonvml.Device, gonvml.Return) {
		l.handles.invalidate() // meanwhile
		return find(uuid)
	}
	_, _, _ = l.MIGMode(d.UUID)
	if l.handles.get(d.UUID) != nil {
		t.Error("it was kept")
	}
}

// A GPU that fell off the bus no longer reports its UUID and keeps its last one.
func TestLostGPUKeepsUUID(t *testing.T) {
	l, server, d := newInitializedLibrary(t)
	if _, err := l.GPUs(); err != nil {
		t.Fatal(err)
	}
	handle := server.DeviceGetHandleByIndexFunc
	server.DeviceGetHandleByIndexFunc = func(i int) (gonvml.Device, gonvml.Return) {
		if i == 0 {
			return nil, gonvml.ERROR_GPU_IS_LOST
		}
		return handle(i)
	}
	gpus, err := l.GPUs()
	if err != nil || len(gpus) != 8 || gpus[0].UUID != d.UUID || gpus[1].Err != nil {
		t.Fatalf("%+v, %v", gpus, err)
	}
	requireError(t, gpus[0].Err, nvml.ErrGPULost)
	// If another GPU has that UUID after indices changed, the lost GPU has none.
	server.DeviceGetHandleByIndexFunc = func(i int) (gonvml.Device, gonvml.Return) {
		if i == 0 {
			return nil, gonvml.ERROR_GPU_IS_LOST
		}
		return handle(i - 1)
	}
	gpus, err = l.GPUs()
	if err != nil || gpus[0].UUID != "" || gpus[1].UUID != d.UUID {
		t.Errorf("%+v, %v", gpus[:2], err)
	}
}

// Panics of the binding and functions that an older library lacks become errors that name the call.
func TestBindingPanic(t *testing.T) {
	l, server, d := newInitializedLibrary(t)
	_, err := l.Utilization(d.UUID) // the mock has none, and panics
	requireError(t, err, nvml.ErrUnknown)
	for _, part := range []string{d.UUID, "nvmlDeviceGetUtilizationRates"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %s", err, part)
		}
	}
	server.LookupSymbolFunc = func(symbol string) error {
		if symbol == "nvmlDeviceGetUtilizationRates" {
			return fmt.Errorf("undefined symbol")
		}
		return nil
	}
	if err := errors.Join(l.Shutdown(), l.Init()); err != nil { // another version of the library
		t.Fatal(err)
	}
	_, err = l.Utilization(d.UUID)
	requireError(t, err, nvml.ErrNotSupported)
	d.GetUtilizationRatesFunc = func() (gonvml.Utilization, gonvml.Return) {
		t.Error("a function was called that the library lacks: that ends the process")
		return gonvml.Utilization{}, gonvml.SUCCESS
	}
	_, err = l.Utilization(d.UUID)
	requireError(t, err, nvml.ErrNotSupported)
}

// Codes that Sluice does not distinguish stay as they are.
func TestUnmappedErrors(t *testing.T) {
	for ret, want := range map[gonvml.Return]nvml.Error{
		gonvml.ERROR_MEMORY:                    20,
		gonvml.ERROR_IRQ_ISSUE:                 11,
		gonvml.ERROR_FUNCTION_NOT_FOUND:        nvml.ErrNotSupported,
		gonvml.ERROR_ARGUMENT_VERSION_MISMATCH: nvml.ErrNotSupported,
		gonvml.ERROR_LIB_RM_VERSION_MISMATCH:   nvml.ErrDriverNotLoaded,
		gonvml.ERROR_GPU_IS_LOST:               nvml.ErrGPULost,
		gonvml.ERROR_UNKNOWN:                   nvml.ErrUnknown,
	} {
		requireError(t, toError("nvmlDeviceGetName", ret), want)
	}
}

// The device of a compute instance is a MIG device. If a driver returns the GPU's own, its MIG
// devices are searched.
func TestFindMIGDevice(t *testing.T) {
	server := dgxa100.New() // not completed: its compute instances have the GPU's UUID
	bare := server.Devices[0].(*dgxa100.Device)
	bare.MigMode = gonvml.DEVICE_MIG_ENABLE
	bare.GetGpuInstanceByIdFunc = func(id int) (gonvml.GpuInstance, gonvml.Return) {
		for gi := range bare.GpuInstances {
			if gi.Info.Id == uint32(id) {
				return gi, gonvml.SUCCESS
			}
		}
		return nil, gonvml.ERROR_NOT_FOUND
	}
	bare.GetMaxMigDeviceCountFunc = func() (int, gonvml.Return) { return 7, gonvml.SUCCESS }
	bare.GetMigDeviceHandleByIndexFunc = func(i int) (gonvml.Device, gonvml.Return) {
		if i%2 == 0 {
			return nil, gonvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetGpuInstanceIdFunc:     func() (int, gonvml.Return) { return i / 2, gonvml.SUCCESS },
			GetComputeInstanceIdFunc: func() (int, gonvml.Return) { return 0, gonvml.SUCCESS },
			GetUUIDFunc:              func() (string, gonvml.Return) { return fmt.Sprintf("MIG-%d", i), gonvml.SUCCESS },
		}, gonvml.SUCCESS
	}
	l := newLibrary(server, Config{})
	if err := l.Init(); err != nil {
		t.Fatal(err)
	}
	for _, start := range []int{0, 1, 2} {
		made, err := l.CreateInstance(bare.UUID, 0, nvml.Placement{Start: start, Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		compute, err := l.CreateComputeInstance(bare.UUID, made.ID)
		if want := fmt.Sprintf("MIG-%d", 2*start+1); err != nil || compute.UUID != want {
			t.Errorf("%+v, %v; want %s", compute, err, want)
		}
	}
}

// The compute instance is the one with all slices, not the first.
func TestComputeInstanceFillsGPUInstance(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	d.MigMode = gonvml.DEVICE_MIG_ENABLE
	for id, slices := range map[nvml.ProfileID]uint32{2: 3, 4: 7, 9: 1} {
		places, err := l.Placements(d.UUID, id)
		if err != nil {
			t.Fatal(err)
		}
		made, err := l.CreateInstance(d.UUID, id, places[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.CreateComputeInstance(d.UUID, made.ID); err != nil {
			t.Fatal(err)
		}
		for gi := range d.GpuInstances {
			for ci := range gi.ComputeInstances {
				if got := dgxa100.MIGProfiles.ComputeInstanceProfiles[int(id)][int(ci.Info.ProfileId)].SliceCount; gi.Info.Id == made.ID &&
					got != slices {
					t.Errorf("profile %d has a compute instance of %d slices, want %d", id, got, slices)
				}
			}
		}
	}
}

// The size of a compute instance follows from its profile, or else from its place. If both are
// unknown, it does not count as filling its instance.
func TestComputeInstanceSlices(t *testing.T) {
	l, _, _ := newInitializedLibrary(t)
	profiles := []gonvml.ComputeInstanceProfileInfo{{Id: 5, SliceCount: 2}}
	for _, tc := range []struct {
		info gonvml.ComputeInstanceInfo
		want int
	}{
		{gonvml.ComputeInstanceInfo{ProfileId: 5, Placement: gonvml.ComputeInstancePlacement{Size: 9}}, 2},
		{gonvml.ComputeInstanceInfo{ProfileId: 6, Placement: gonvml.ComputeInstancePlacement{Size: 3}}, 3},
		{gonvml.ComputeInstanceInfo{ProfileId: 6}, 0},
	} {
		tc.info.Device = &mock.Device{GetUUIDFunc: func() (string, gonvml.Return) { return "MIG-1", gonvml.SUCCESS }}
		got, err := l.readComputeInstance(nil, 1, &mock.ComputeInstance{GetInfoFunc: func() (gonvml.ComputeInstanceInfo,
			gonvml.Return,
		) {
			return tc.info, gonvml.SUCCESS
		}}, profiles)
		if tc.want == 0 {
			requireError(t, err, nvml.ErrUnknown)
		} else if got.Slices != tc.want || err != nil {
			t.Errorf("%+v, %v; want %d slices", got, err, tc.want)
		}
	}
}

// A process in two lists counts once; unknown memory stays unknown; no instance is NoInstance.
func TestProcesses(t *testing.T) {
	const mib, none = 1 << 20, math.MaxUint32
	l, _, d := newInitializedLibrary(t)
	give := func(list ...gonvml.ProcessInfo) func() ([]gonvml.ProcessInfo, gonvml.Return) {
		return func() ([]gonvml.ProcessInfo, gonvml.Return) { return list, gonvml.SUCCESS }
	}
	refuse := func(ret gonvml.Return) func() ([]gonvml.ProcessInfo, gonvml.Return) {
		return func() ([]gonvml.ProcessInfo, gonvml.Return) { return nil, ret }
	}
	d.GetComputeRunningProcessesFunc = give(
		gonvml.ProcessInfo{Pid: 30, UsedGpuMemory: 300 * mib, GpuInstanceId: 2},
		gonvml.ProcessInfo{Pid: 30, UsedGpuMemory: 100 * mib, GpuInstanceId: 1},
		gonvml.ProcessInfo{Pid: 10, UsedGpuMemory: math.MaxUint64, GpuInstanceId: none, ComputeInstanceId: none},
		gonvml.ProcessInfo{Pid: 20, UsedGpuMemory: math.MaxUint64, GpuInstanceId: none, ComputeInstanceId: none})
	d.GetGraphicsRunningProcessesFunc = give(
		gonvml.ProcessInfo{Pid: 20, UsedGpuMemory: 7 * mib, GpuInstanceId: none, ComputeInstanceId: none})
	d.GetMPSComputeRunningProcessesFunc = give(
		gonvml.ProcessInfo{Pid: 5, UsedGpuMemory: mib, GpuInstanceId: none, ComputeInstanceId: none})
	want := []nvml.Process{
		{PID: 5, MemoryMiB: 1, Instance: nvml.NoInstance, Compute: nvml.NoInstance},
		{PID: 10, MemoryMiB: nvml.UnknownMiB, Instance: nvml.NoInstance, Compute: nvml.NoInstance},
		{PID: 20, MemoryMiB: 7, Instance: nvml.NoInstance, Compute: nvml.NoInstance},
		{PID: 30, MemoryMiB: 100, Instance: 1},
		{PID: 30, MemoryMiB: 300, Instance: 2},
	}
	got, err := l.Processes(d.UUID)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)

	// A GPU model without graphics, or a library without MPS, is no error.
	d.GetGraphicsRunningProcessesFunc = refuse(gonvml.ERROR_NOT_SUPPORTED)
	d.GetMPSComputeRunningProcessesFunc = refuse(gonvml.ERROR_FUNCTION_NOT_FOUND)
	if got, err := l.Processes(d.UUID); err != nil || len(got) != 4 {
		t.Errorf("%v, %v", got, err)
	}
	// Other errors count: the list may lack processes.
	d.GetMPSComputeRunningProcessesFunc = refuse(gonvml.ERROR_UNKNOWN)
	_, err = l.Processes(d.UUID)
	requireError(t, err, nvml.ErrUnknown)
	d.GetComputeRunningProcessesFunc = refuse(gonvml.ERROR_NOT_SUPPORTED)
	_, err = l.Processes(d.UUID)
	requireError(t, err, nvml.ErrNotSupported)
}

func TestProcessUtilization(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	since := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(after time.Duration) uint64 { return uint64(since.Add(after).UnixMicro()) }
	type answers []func() ([]gonvml.ProcessUtilizationSample, gonvml.Return)
	give := func(ret gonvml.Return, list ...gonvml.ProcessUtilizationSample) func() ([]gonvml.ProcessUtilizationSample, gonvml.Return) {
		return func() ([]gonvml.ProcessUtilizationSample, gonvml.Return) { return list, ret }
	}
	grown := func() ([]gonvml.ProcessUtilizationSample, gonvml.Return) {
		n := 2
		return make([]gonvml.ProcessUtilizationSample, 1)[:n], gonvml.ERROR_INSUFFICIENT_SIZE // as the binding does
	}
	one := give(gonvml.SUCCESS, gonvml.ProcessUtilizationSample{Pid: 7, TimeStamp: at(time.Second), SmUtil: 40})
	wanted := []nvml.ProcessSample{{PID: 7, At: since.Add(time.Second).Local(), SM: 40}}
	for _, c := range []struct {
		name string
		answers
		want []nvml.ProcessSample
		err  error
	}{
		{"one", answers{one}, wanted, nil},
		{"none found", answers{give(gonvml.ERROR_NOT_FOUND)}, nil, nil},
		{"no data", answers{give(gonvml.ERROR_NO_DATA)}, nil, nil},
		{"none, in the binding's words", answers{give(gonvml.ERROR_INSUFFICIENT_SIZE)}, nil, nil},
		{"grown meanwhile", answers{grown, one}, wanted, nil},
		{"grown each time", answers{grown, grown}, nil, nvml.ErrUnknown},
		{"in MIG mode", answers{give(gonvml.ERROR_NOT_SUPPORTED)}, nil, nvml.ErrNotSupported},
		{"the newest, and nothing that cannot be", answers{give(gonvml.SUCCESS,
			gonvml.ProcessUtilizationSample{Pid: 7, TimeStamp: at(time.Millisecond), SmUtil: 90},
			gonvml.ProcessUtilizationSample{Pid: 7, TimeStamp: at(time.Second), SmUtil: 40},
			gonvml.ProcessUtilizationSample{Pid: 0, TimeStamp: at(time.Second), SmUtil: 1},
			gonvml.ProcessUtilizationSample{Pid: 8, TimeStamp: at(time.Second), SmUtil: 4_294_967_295},
			gonvml.ProcessUtilizationSample{Pid: 9, TimeStamp: at(-time.Second), SmUtil: 1})}, wanted, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			d.GetProcessUtilizationFunc = func(last uint64) ([]gonvml.ProcessUtilizationSample, gonvml.Return) {
				requireEqual(t, last, at(0))
				calls++
				return c.answers[calls-1]()
			}
			got, err := l.ProcessUtilization(d.UUID, since)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			requireEqual(t, got, c.want)
		})
	}
}

// Memory that the driver reserves is not in use.
func TestMemory(t *testing.T) {
	l, _, d := newInitializedLibrary(t)
	d.MemoryInfo = gonvml.Memory{Total: 100 << 20, Used: 30 << 20}
	got, err := l.Memory(d.UUID) // the mock has only the older call
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, nvml.Memory{TotalMiB: 100, UsedMiB: 30})
	d.GetMemoryInfo_v2Func = func() (gonvml.Memory_v2, gonvml.Return) {
		return gonvml.Memory_v2{Total: 100 << 20, Reserved: 20 << 20, Used: 10 << 20}, gonvml.SUCCESS
	}
	got, err = l.Memory(d.UUID)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, nvml.Memory{TotalMiB: 100, UsedMiB: 10, ReservedMiB: 20})
}

func TestMissingLibrary(t *testing.T) {
	for _, path := range []string{"/nowhere/libnvidia-ml.so.1", "libc.so.6", "doc.go"} {
		l := New(Config{Path: path})
		err := l.Init()
		requireError(t, err, nvml.ErrLibraryNotFound)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%v does not name %s", err, path)
		}
		_, err = l.GPUs()
		requireError(t, err, nvml.ErrUninitialized)
		requireError(t, l.Shutdown(), nvml.ErrUninitialized)
	}
}

func TestInitRetry(t *testing.T) {
	server := newDGX()
	l := newLibrary(server, Config{})
	server.InitFunc = func() gonvml.Return { return gonvml.ERROR_DRIVER_NOT_LOADED }
	requireError(t, l.Init(), nvml.ErrDriverNotLoaded)
	_, err := l.DriverVersion()
	requireError(t, err, nvml.ErrUninitialized)
	server.InitFunc = func() gonvml.Return { return gonvml.SUCCESS }
	if err := l.Init(); err != nil {
		t.Fatal(err)
	}
	if err := l.Init(); err != nil {
		t.Errorf("again: %v", err)
	}
	version, err := l.DriverVersion()
	if err != nil || version != "550.54.15" {
		t.Errorf("%q, %v", version, err)
	}
}
