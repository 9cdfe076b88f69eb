// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package served_test

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
	"sluice.dev/gpuagent/nvml/simulator/served"
)

const (
	mig   = "GPU-mig"
	whole = "GPU-whole"
)

var epoch = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

func node(t *testing.T) *simulator.Node {
	t.Helper()
	n, err := simulator.New(simulator.Config{
		Order: simulator.Steady, Clock: simulator.Skipping(epoch),
		GPUs: []simulator.GPU{{Board: "A100-40GB", UUID: mig, Mode: nvml.Enabled}, {Board: "H100-80GB", UUID: whole}, {Board: "T4", UUID: "GPU-lost"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// socket is a path that is short enough for one.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nvml")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "nvml.sock")
}

// serve serves a node until stop.
func serve(t *testing.T, path string, n *simulator.Node) (stop func()) {
	t.Helper()
	listener, err := served.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- served.Serve(ctx, listener, n) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// dial is a client on which Init was called.
func dial(t *testing.T, path string) *served.Client {
	t.Helper()
	c := served.Dial(path)
	if err := c.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Shutdown() })
	return c
}

// TestSameAnswers makes the same calls at a node and through the socket of its twin.
func TestSameAnswers(t *testing.T) {
	near, behind := node(t), node(t)
	if err := near.Init(); err != nil {
		t.Fatal(err)
	}
	path := socket(t)
	serve(t, path, behind)
	far := dial(t, path)
	for _, n := range []*simulator.Node{near, behind} {
		n.Lose("GPU-lost")
		if err := n.Attach(7, whole, nvml.UnknownMiB, 40); err != nil {
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
		{"Memory", args{whole}},
		{"Memory", args{"GPU-lost"}},
		{"Utilisation", args{whole}},
		{"Utilisation", args{mig}},
		{"Processes", args{whole}},
		{"Processes", args{mig}},
		{"ProcessUtilisation", args{whole, epoch.Add(-time.Second)}},
		{"ProcessUtilisation", args{whole, epoch}},
		{"MIGMode", args{mig}},
		{"MIGMode", args{"GPU-lost"}},
		{"SetMIGMode", args{whole, nvml.Enabled}},
		{"SetMIGMode", args{mig, nvml.Disabled}},
		{"MIGMode", args{mig}},
		{"SetMIGMode", args{mig, nvml.Enabled}},
		{"SetMIGMode", args{"GPU-none", nvml.Enabled}},
		{"Reset", args{mig}},
		{"Reset", args{whole}},
		{"Profiles", args{mig}},
		{"Placements", args{mig, nvml.ProfileID(9)}},
		{"Placements", args{mig, nvml.ProfileID(8)}},
		{"RemainingCapacity", args{mig, nvml.ProfileID(19)}},
		{"CreateInstance", args{mig, nvml.ProfileID(9), nvml.Placement{Start: 4, Size: 4}}},
		{"CreateInstance", args{mig, nvml.ProfileID(9), nvml.Placement{Start: 4, Size: 4}}},
		{"CreateInstance", args{mig, nvml.ProfileID(19), nvml.Placement{Start: 2, Size: 1}}},
		{"Instances", args{mig}},
		{"CreateComputeInstance", args{mig, uint32(0)}},
		{"ComputeInstances", args{mig, uint32(0)}},
		{"ComputeInstances", args{mig, uint32(1)}},
		{"ComputeInstances", args{mig, uint32(2)}},
		{"DestroyInstance", args{mig, uint32(0)}},
		{"DestroyComputeInstance", args{mig, uint32(0), uint32(0)}},
		{"DestroyComputeInstance", args{mig, uint32(0), uint32(0)}},
		{"DestroyInstance", args{mig, uint32(0)}},
		{"Instances", args{mig}},
		{"Shutdown", nil},
		{"GPUs", nil},
	} {
		want, got := answer(near, step.method, step.args), answer(far, step.method, step.args)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s%v (-node +socket):\n%s", step.method, step.args, diff)
		}
	}
}

// answer calls a method; errors become their numbers.
func answer(l nvml.Library, method string, args []any) []any {
	var in []reflect.Value
	for _, arg := range args {
		in = append(in, reflect.ValueOf(arg))
	}
	var out []any
	for _, v := range reflect.ValueOf(l).MethodByName(method).Call(in) {
		it := v.Interface()
		if err, is := it.(error); is {
			it = number(err)
		}
		if gpus, is := it.([]nvml.GPU); is {
			for i := range gpus {
				out = append(out, number(gpus[i].Err))
				gpus[i].Err = nil
			}
		}
		out = append(out, it)
	}
	return out
}

func number(err error) nvml.Error {
	var e nvml.Error
	errors.As(err, &e)
	return e
}

// TestErrors carries each error of the driver through the socket.
func TestErrors(t *testing.T) {
	n, path := node(t), socket(t)
	serve(t, path, n)
	c := dial(t, path)
	for _, want := range []nvml.Error{
		nvml.ErrInvalidArgument, nvml.ErrNotSupported, nvml.ErrNoPermission, nvml.ErrNotFound, nvml.ErrDriverNotLoaded,
		nvml.ErrTimeout, nvml.ErrLibraryNotFound, nvml.ErrGPULost, nvml.ErrResetRequired, nvml.ErrInUse,
		nvml.ErrInsufficientResources, nvml.ErrNotReady, nvml.ErrInvalidState, nvml.ErrUnknown, 4711,
	} {
		n.Fail(simulator.Fault{Method: "Memory", Times: 1, Err: want})
		_, err := c.Memory(mig)
		if !errors.Is(err, want) {
			t.Errorf("Memory = %v, want %v", err, want)
		}
		n.Fail(simulator.Fault{Method: "Memory", Times: 1, Err: want})
		other := n.Open()
		is(t, "Init", other.Init(), 0)
		_, near := other.Memory(mig)
		if near == nil || err == nil || near.Error() != err.Error() {
			t.Errorf("Memory says %v through the socket, and %v without", err, near)
		}
	}
}

// TestInit has what Init says where there is no driver.
func TestInit(t *testing.T) {
	n, path := node(t), socket(t)
	c := served.Dial(path)
	_, err := c.GPUs()
	is(t, "GPUs before Init", err, nvml.ErrUninitialized)
	is(t, "Init without a server", c.Init(), nvml.ErrDriverNotLoaded)
	serve(t, path, n)
	n.Unload(nvml.ErrLibraryNotFound)
	is(t, "Init without a library", c.Init(), nvml.ErrLibraryNotFound)
	n.Load()
	is(t, "Init", c.Init(), 0)
	is(t, "Shutdown", c.Shutdown(), 0)
	is(t, "Shutdown again", c.Shutdown(), nvml.ErrUninitialized)
	_, err = c.GPUs()
	is(t, "GPUs after Shutdown", err, nvml.ErrUninitialized)
}

func is(t *testing.T, what string, err error, want nvml.Error) {
	t.Helper()
	if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

// TestServerRestarts has a client outlive servers and boots.
func TestServerRestarts(t *testing.T) {
	n, path := node(t), socket(t)
	stop := serve(t, path, n)
	c := dial(t, path)
	_, err := c.GPUs()
	is(t, "GPUs", err, 0)
	stop()
	_, err = c.GPUs()
	is(t, "GPUs without a server", err, nvml.ErrDriverNotLoaded)
	stop = serve(t, path, n)
	_, err = c.GPUs()
	is(t, "GPUs of the next server", err, 0)
	stop()
	serve(t, path, n)
	_, err = c.GPUs()
	is(t, "GPUs of the one after", err, 0)
	n.Boot()
	_, err = c.GPUs()
	is(t, "GPUs after a boot", err, 0)
	n.Unload(nvml.ErrDriverNotLoaded)
	_, err = c.GPUs()
	is(t, "GPUs without a driver", err, nvml.ErrDriverNotLoaded)
	n.Load()
	_, err = c.GPUs()
	is(t, "GPUs with it again", err, 0)
}

// TestServerDiesDuringACall ends the server after the effect: the client does not
// know, and the effect is there once and no more.
func TestServerDiesDuringACall(t *testing.T) {
	n, path := node(t), socket(t)
	stop := serve(t, path, n)
	c := dial(t, path)
	returned := make(chan struct{})
	n.Hook(simulator.Hooks{After: func(call simulator.Call, _ error) {
		if call.Method == "CreateInstance" {
			go stop()
			<-returned
		}
	}})
	_, err := c.CreateInstance(mig, 19, nvml.Placement{Start: 0, Size: 1})
	is(t, "CreateInstance", err, nvml.ErrUnknown)
	close(returned)
	stop()
	n.Hook(simulator.Hooks{})
	serve(t, path, n)
	there, err := c.Instances(mig)
	if err != nil || len(there) != 1 {
		t.Errorf("Instances = %v, %v, want the one that was made", there, err)
	}
}

// TestLimit has a driver that does not answer: the call ends, and others go on.
func TestLimit(t *testing.T) {
	n, path := node(t), socket(t)
	serve(t, path, n)
	c := served.Dial(path)
	c.Limit = 100 * time.Millisecond
	is(t, "Init", c.Init(), 0)
	answers, hangs := make(chan struct{}), make(chan struct{}, 1)
	n.Hook(simulator.Hooks{Before: func(call simulator.Call) {
		if call.Method == "Reset" {
			hangs <- struct{}{}
			<-answers
		}
	}})
	defer close(answers)
	done := make(chan error, 1)
	go func() { done <- c.Reset(mig) }()
	<-hangs
	_, err := c.GPUs()
	is(t, "GPUs while Reset hangs", err, 0)
	is(t, "Reset", <-done, nvml.ErrTimeout)
	_, err = c.GPUs()
	is(t, "GPUs afterwards", err, 0)
}

func TestManyAtOnce(t *testing.T) {
	n, path := node(t), socket(t)
	serve(t, path, n)
	c := dial(t, path)
	var calls sync.WaitGroup
	for k := range 20 {
		calls.Go(func() {
			for range 20 {
				at := nvml.Placement{Start: k % 7, Size: 1}
				it, err := c.CreateInstance(mig, 19, at)
				if errors.Is(err, nvml.ErrInsufficientResources) {
					continue
				}
				if err != nil || it.Placement != at {
					t.Errorf("CreateInstance at %v = %+v, %v", at, it, err)
				}
				if err := c.DestroyInstance(mig, it.ID); err != nil {
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
	path := socket(t)
	stop := serve(t, path, node(t))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v, want 0600", info.Mode(), err)
	}
	if _, err := served.Listen(t.Context(), path); err == nil {
		t.Error("two servers listen on one socket")
	}
	stop()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	serve(t, path, node(t)) // in the place of the one that was left behind
	if _, err := served.Listen(t.Context(), path+strings.Repeat("x", 108)); err == nil || !strings.Contains(err.Error(), "at most 107") {
		t.Errorf("Listen on a long path = %v, want the limit", err)
	}
	file := filepath.Join(filepath.Dir(path), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := served.Listen(t.Context(), file); err == nil {
		t.Error("a file was replaced by a socket")
	}
}
