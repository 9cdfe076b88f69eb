// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// maxConnections is the maximal number of connections; further ones wait.
const maxConnections = 128

// Serve answers calls on a node until ctx ends. It then closes the listener, waits for the calls in
// progress and returns nil. It returns an error if it cannot accept connections. Each connection is
// a program of its own with its own Init.
func Serve(ctx context.Context, listener net.Listener, node *Node) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	slots := make(chan struct{}, maxConnections)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		connection, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				connection.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		connections.Go(func() {
			defer func() { <-slots }()
			handleConnection(ctx, connection, node.Open())
		})
	}
}

// handleConnection answers the calls of one connection until it ends.
func handleConnection(ctx context.Context, connection net.Conn, library nvml.Library) {
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	lines := bufio.NewReader(connection)
	for {
		var r request
		err := readLine(lines, &r)
		var closed *net.OpError
		if errors.Is(err, io.EOF) || errors.As(err, &closed) {
			return
		}
		answer := response{Error: toDriverError(err)}
		if err == nil {
			answer = executeRequest(library, &r)
		}
		if deadline := connection.SetWriteDeadline(time.Now().Add(10 * time.Second)); deadline != nil {
			return
		}
		// After an invalid line the start of the next call is unknown.
		if writeLine(connection, answer) != nil || err != nil {
			return
		}
	}
}

func executeRequest(library nvml.Library, r *request) response {
	answer, err := dispatchCall(library, r)
	if err != nil {
		return response{Error: toDriverError(err)}
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return response{Error: toDriverError(err)}
	}
	return response{Result: raw}
}

// dispatchCall calls the requested method.
func dispatchCall(library nvml.Library, r *request) (any, error) {
	switch r.Method {
	case "Init":
		return nil, library.Init()
	case "Shutdown":
		return nil, library.Shutdown()
	case "DriverVersion":
		return library.DriverVersion()
	case "GPUs":
		return listGPUs(library)
	case "Memory":
		return library.Memory(r.GPU)
	case "Utilization":
		return library.Utilization(r.GPU)
	case "Processes":
		return library.Processes(r.GPU)
	case "ProcessUtilization":
		return library.ProcessUtilization(r.GPU, r.sinceTime())
	case "InstanceUtilization":
		return library.InstanceUtilization(r.GPU, r.Instance)
	case "MIGMode":
		current, pending, err := library.MIGMode(r.GPU)
		return modeResult{current, pending}, err
	case "SetMIGMode":
		activation, err := library.SetMIGMode(r.GPU, r.Mode)
		return toDriverError(activation), err
	case "Reset":
		return nil, library.Reset(r.GPU)
	case "Profiles":
		return library.Profiles(r.GPU)
	case "Placements":
		return library.Placements(r.GPU, r.Profile)
	case "RemainingCapacity":
		return library.RemainingCapacity(r.GPU, r.Profile)
	case "Instances":
		return library.Instances(r.GPU)
	case "CreateInstance":
		return library.CreateInstance(r.GPU, r.Profile, r.placement())
	case "DestroyInstance":
		return nil, library.DestroyInstance(r.GPU, r.Instance)
	case "ComputeInstances":
		return library.ComputeInstances(r.GPU, r.Instance)
	case "CreateComputeInstance":
		return library.CreateComputeInstance(r.GPU, r.Instance)
	case "DestroyComputeInstance":
		return nil, library.DestroyComputeInstance(r.GPU, r.Instance, r.Compute)
	default:
		return nil, fmt.Errorf("no method %q: %w", r.Method, nvml.ErrInvalidArgument)
	}
}

func listGPUs(library nvml.Library) ([]gpuResult, error) {
	found, err := library.GPUs()
	list := make([]gpuResult, len(found))
	for i, it := range found {
		list[i] = gpuResult{GPU: it, Err: toDriverError(it.Err)}
		list[i].GPU.Err = nil
	}
	return list, err
}

func (r *request) sinceTime() time.Time {
	if r.Since == nil {
		return time.Time{}
	}
	return *r.Since
}

func (r *request) placement() nvml.Placement {
	if r.At == nil {
		return nvml.Placement{}
	}
	return *r.At
}

// maxSocketPath is the maximal length of a socket's path in bytes, a limit of the kernel.
const maxSocketPath = 107

// Listen creates a socket at a path that only its owner can use. It replaces the socket of a server
// that ended. It returns an error if another server uses the path, or if another file lies there.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes; the limit for a socket is %d; choose a shorter one", path, len(path),
			maxSocketPath)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		// Before bind, so that other users can connect at no moment.
		if inner := raw.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); inner != nil {
			return inner
		}
		return err
	}}
	return config.Listen(ctx, "unix", path)
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("the file is not a socket; choose another path or remove it")
	}
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		connection.Close()
		return errors.New("another server uses it; stop it first")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
