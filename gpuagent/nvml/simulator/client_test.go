// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

const (
	migUUID   = "GPU-mig"
	wholeUUID = "GPU-whole"
)

func newSocketNode(t *testing.T) *simulator.Node {
	t.Helper()
	n, err := simulator.New(simulator.Config{
		Order: simulator.StableOrder, Clock: simulator.NewSkipClock(startTime),
		GPUs: []simulator.GPU{
			{Model: "A100-40GB", UUID: migUUID, Mode: nvml.Enabled},
			{Model: "H100-80GB", UUID: wholeUUID},
			{Model: "T4", UUID: "GPU-lost"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// socketPath returns a path that is short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nvml")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "nvml.sock")
}

// serveNode serves a node until stop is called.
func serveNode(t *testing.T, path string, n *simulator.Node) (stop func()) {
	t.Helper()
	listener, err := simulator.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- simulator.Serve(ctx, listener, n) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// newInitializedClient returns a client after Init.
func newInitializedClient(t *testing.T, path string) *simulator.Client {
	t.Helper()
	c := simulator.Dial(path)
	if err := c.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Shutdown() })
	return c
}

// TestClientMatchesNode makes the same calls on a node and through the socket of its twin.
func TestClientMatchesNode(t *testing.T) {
	near, behind := newSocketNode(t), newSocketNode(t)
	if err := near.Init(); err != nil {
		t.Fatal(err)
	}
	path := socketPath(t)
	serveNode(t, path, behind)
	far := newInitializedClient(t, path)
	for _, n := range []*simulator.Node{near, behind} {
		n.Lose("GPU-lost")
		if err := n.Attach(7, wholeUUID, nvml.UnknownMiB, 40); err != nil {
			t.Fatal(err)
		}
	}
	type args = []any
	for _, step := range []struct {
		method string
		args   args
	}{
		{"DriverVersion", nil},
		{"GPUs", nil},
		{"Memory", args{wholeUUID}},
		{"Memory", args{"GPU-lost"}},
		{"Utilization", args{wholeUUID}},
		{"Utilization", args{migUUID}},
		{"Processes", args{wholeUUID}},
		{"Processes", args{migUUID}},
		{"ProcessUtilization", args{wholeUUID, startTime.Add(-time.Second)}},
		{"ProcessUtilization", args{wholeUUID, startTime}},
		{"InstanceUtilization", args{migUUID, uint32(0)}},
		{"InstanceUtilization", args{wholeUUID, uint32(0)}},
		{"MIGMode", args{migUUID}},
		{"MIGMode", args{"GPU-lost"}},
		{"SetMIGMode", args{wholeUUID, nvml.Enabled}},
		{"SetMIGMode", args{migUUID, nvml.Disabled}},
		{"MIGMode", args{migUUID}},
		{"SetMIGMode", args{migUUID, nvml.Enabled}},
		{"SetMIGMode", args{"GPU-none", nvml.Enabled}},
		{"Reset", args{migUUID}},
		{"Reset", args{wholeUUID}},
		{"Profiles", args{migUUID}},
		{"Placements", args{migUUID, nvml.ProfileID(9)}},
		{"Placements", args{migUUID, nvml.ProfileID(8)}},
		{"RemainingCapacity", args{migUUID, nvml.ProfileID(19)}},
		{"CreateInstance", args{migUUID, nvml.ProfileID(9), nvml.Placement{Start: 4, Size: 4}}},
		{"CreateInstance", args{migUUID, nvml.ProfileID(9), nvml.Placement{Start: 4, Size: 4}}},
		{"CreateInstance", args{migUUID, nvml.ProfileID(19), nvml.Placement{Start: 2, Size: 1}}},
		{"Instances", args{migUUID}},
		{"CreateComputeInstance", args{migUUID, uint32(0)}},
		{"ComputeInstances", args{migUUID, uint32(0)}},
		{"ComputeInstances", args{migUUID, uint32(1)}},
		{"ComputeInstances", args{migUUID, uint32(2)}},
		{"DestroyInstance", args{migUUID, uint32(0)}},
		{"DestroyComputeInstance", args{migUUID, uint32(0), uint32(0)}},
		{"DestroyComputeInstance", args{migUUID, uint32(0), uint32(0)}},
		{"DestroyInstance", args{migUUID, uint32(0)}},
		{"Instances", args{migUUID}},
		{"Shutdown", nil},
		{"GPUs", nil},
	} {
		want, got := callMethod(near, step.method, step.args), callMethod(far, step.method, step.args)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s%v (-node +socket):\n%s", step.method, step.args, diff)
		}
	}
}

// callMethod calls a method; errors become their codes.
func callMethod(l nvml.Library, method string, args []any) []any {
	var in []reflect.Value
	for _, arg := range args {
		in = append(in, reflect.ValueOf(arg))
	}
	var out []any
	for _, v := range reflect.ValueOf(l).MethodByName(method).Call(in) {
		it := v.Interface()
		if err, is := it.(error); is {
			it = errorCode(err)
		}
		if gpus, is := it.([]nvml.GPU); is {
			for i := range gpus {
				out = append(out, errorCode(gpus[i].Err))
				gpus[i].Err = nil
			}
		}
		out = append(out, it)
	}
	return out
}

func errorCode(err error) nvml.Error {
	var e nvml.Error
	errors.As(err, &e)
	return e
}

// TestClientErrors sends each error of the driver through the socket.
func TestClientErrors(t *testing.T) {
	n, path := newSocketNode(t), socketPath(t)
	serveNode(t, path, n)
	c := newInitializedClient(t, path)
	for _, want := range []nvml.Error{
		nvml.ErrInvalidArgument, nvml.ErrNotSupported, nvml.ErrNoPermission, nvml.ErrNotFound, nvml.ErrDriverNotLoaded,
		nvml.ErrTimeout, nvml.ErrLibraryNotFound, nvml.ErrGPULost, nvml.ErrResetRequired, nvml.ErrInUse,
		nvml.ErrInsufficientResources, nvml.ErrNotReady, nvml.ErrInvalidState, nvml.ErrUnknown, 4711,
	} {
		n.Fail(simulator.Fault{Method: "Memory", Times: 1, Err: want})
		_, err := c.Memory(migUUID)
		if !errors.Is(err, want) {
			t.Errorf("Memory = %v, want %v", err, want)
		}
		n.Fail(simulator.Fault{Method: "Memory", Times: 1, Err: want})
		other := n.Open()
		requireError(t, "Init", other.Init(), 0)
		_, near := other.Memory(migUUID)
		if near == nil || err == nil || near.Error() != err.Error() {
			t.Errorf("Memory = %v through the socket, and %v without", err, near)
		}
	}
}

// TestClientInit checks Init's error without a driver.
func TestClientInit(t *testing.T) {
	n, path := newSocketNode(t), socketPath(t)
	c := simulator.Dial(path)
	_, err := c.GPUs()
	requireError(t, "GPUs before Init", err, nvml.ErrUninitialized)
	requireError(t, "Init without a server", c.Init(), nvml.ErrDriverNotLoaded)
	serveNode(t, path, n)
	n.Unload(nvml.ErrLibraryNotFound)
	requireError(t, "Init without a library", c.Init(), nvml.ErrLibraryNotFound)
	n.Load()
	requireError(t, "Init", c.Init(), 0)
	requireError(t, "Shutdown", c.Shutdown(), 0)
	requireError(t, "Shutdown again", c.Shutdown(), nvml.ErrUninitialized)
	_, err = c.GPUs()
	requireError(t, "GPUs after Shutdown", err, nvml.ErrUninitialized)
}

// TestServerRestarts checks that a client outlives servers and boots.
func TestServerRestarts(t *testing.T) {
	n, path := newSocketNode(t), socketPath(t)
	stop := serveNode(t, path, n)
	c := newInitializedClient(t, path)
	_, err := c.GPUs()
	requireError(t, "GPUs", err, 0)
	stop()
	_, err = c.GPUs()
	requireError(t, "GPUs without a server", err, nvml.ErrDriverNotLoaded)
	stop = serveNode(t, path, n)
	_, err = c.GPUs()
	requireError(t, "GPUs of the next server", err, 0)
	stop()
	serveNode(t, path, n)
	_, err = c.GPUs()
	requireError(t, "GPUs of the one after", err, 0)
	n.Boot()
	_, err = c.GPUs()
	requireError(t, "GPUs after a boot", err, 0)
	n.Unload(nvml.ErrDriverNotLoaded)
	_, err = c.GPUs()
	requireError(t, "GPUs without a driver", err, nvml.ErrDriverNotLoaded)
	n.Load()
	_, err = c.GPUs()
	requireError(t, "GPUs with it again", err, 0)
}

// TestServerStopsDuringCall ends the server after the effect: the client does not know the effect,
// which happens exactly once.
func TestServerStopsDuringCall(t *testing.T) {
	n, path := newSocketNode(t), socketPath(t)
	stop := serveNode(t, path, n)
	c := newInitializedClient(t, path)
	returned := make(chan struct{})
	n.Hook(simulator.Hooks{After: func(call simulator.Call, _ error) {
		if call.Method == "CreateInstance" {
			go stop()
			<-returned
		}
	}})
	_, err := c.CreateInstance(migUUID, 19, nvml.Placement{Start: 0, Size: 1})
	requireError(t, "CreateInstance", err, nvml.ErrUnknown)
	close(returned)
	stop()
	n.Hook(simulator.Hooks{})
	serveNode(t, path, n)
	there, err := c.Instances(migUUID)
	if err != nil || len(there) != 1 {
		t.Errorf("Instances = %v, %v, want the one that was made", there, err)
	}
}

// TestCallTimeout checks that a hung call ends, and others continue.
func TestCallTimeout(t *testing.T) {
	n, path := newSocketNode(t), socketPath(t)
	serveNode(t, path, n)
	c := newInitializedClient(t, path)
	hung := newInitializedClient(t, path)
	hung.CallTimeout = 100 * time.Millisecond // no other call, which a busy machine may not answer so soon
	answers, hangs := make(chan struct{}), make(chan struct{}, 1)
	n.Hook(simulator.Hooks{Before: func(call simulator.Call) {
		if call.Method == "Reset" {
			hangs <- struct{}{}
			<-answers
		}
	}})
	defer close(answers)
	done := make(chan error, 1)
	go func() { done <- hung.Reset(migUUID) }()
	<-hangs
	_, err := c.GPUs()
	requireError(t, "GPUs while Reset hangs", err, 0)
	requireError(t, "Reset", <-done, nvml.ErrTimeout)
	hung.CallTimeout = 0
	_, err = hung.GPUs()
	requireError(t, "GPUs afterwards", err, 0)
}

func TestConcurrentClients(t *testing.T) {
	n, path := newSocketNode(t), socketPath(t)
	serveNode(t, path, n)
	c := newInitializedClient(t, path)
	var calls sync.WaitGroup
	for k := range 20 {
		calls.Go(func() {
			for range 20 {
				at := nvml.Placement{Start: k % 7, Size: 1}
				it, err := c.CreateInstance(migUUID, 19, at)
				if errors.Is(err, nvml.ErrInsufficientResources) {
					continue
				}
				if err != nil || it.Placement != at {
					t.Errorf("CreateInstance at %v = %+v, %v", at, it, err)
				}
				if err := c.DestroyInstance(migUUID, it.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	if err := n.Check(); err != nil {
		t.Error(err)
	}
}

func TestListen(t *testing.T) {
	path := socketPath(t)
	stop := serveNode(t, path, newSocketNode(t))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v, want 0600", info.Mode(), err)
	}
	if _, err := simulator.Listen(t.Context(), path); err == nil {
		t.Error("two servers listen on one socket")
	}
	stop()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	serveNode(t, path, newSocketNode(t)) // in place of the one that was left behind
	if _, err := simulator.Listen(t.Context(), path+strings.Repeat("x", 108)); err == nil || !strings.Contains(err.Error(), "socket is 107") {
		t.Errorf("Listen on a long path = %v, want the limit", err)
	}
	file := filepath.Join(filepath.Dir(path), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := simulator.Listen(t.Context(), file); err == nil {
		t.Error("a file was replaced by a socket")
	}
}
