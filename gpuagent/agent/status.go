// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/status"
)

// statusPath is where the picture is asked for.
const statusPath = "/status"

// socketTimeout is how long a question on the socket may take.
const socketTimeout = 5 * time.Second

// serveStatus tells on the node's socket what is to be seen, to its own user alone, until
// ctx ends. It takes no orders.
func (a *agent) serveStatus(ctx context.Context) error {
	path := a.cfg.Socket()
	// An agent that was killed leaves its socket; the journal's lock keeps out a second.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the agent's socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("the agent's socket: %w", err)
	}
	// The folder may have been made by the kubelet, for everybody to enter.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = listener.Close()
		return fmt.Errorf("the agent's socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		node := a.snapshot.Load()
		if node == nil {
			http.Error(w, "the agent has not looked at the GPUs yet", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(node) // whoever asked has gone
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: socketTimeout, WriteTimeout: socketTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the agent's socket: %w", err)
	}
	return nil
}

// FetchStatus is what the agent that serves the socket sees.
func FetchStatus(ctx context.Context, socket string) (status.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, socketTimeout)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gpuagent"+statusPath, http.NoBody)
	if err != nil {
		return status.Node{}, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return status.Node{}, fmt.Errorf("asking the agent at %s: %w", socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return status.Node{}, fmt.Errorf("asking the agent at %s: %s", socket, text)
	}
	var node status.Node
	if err := json.NewDecoder(answer.Body).Decode(&node); err != nil {
		return status.Node{}, fmt.Errorf("asking the agent at %s: %w", socket, err)
	}
	return node, nil
}

// ObserveDirect is what the driver and the kubelet tell where no agent runs. It writes nothing.
// Which instances are Sluice's it cannot tell, and calls none foreign.
func ObserveDirect(ctx context.Context, cfg *Config, library nvml.Library) (status.Node, error) {
	if err := library.Init(); err != nil {
		return status.Node{}, fmt.Errorf("%s", driverUnavailable(err).Message)
	}
	defer func() { _ = library.Shutdown() }()
	version, err := library.DriverVersion()
	if err != nil {
		return status.Node{}, err
	}
	sight, blind := readHolders(ctx, cfg.PodResources)
	book, err := partition.OpenJournal(emptyJournalStore{}, "here", "now")
	if err != nil {
		return status.Node{}, err
	}
	engine := partition.Engine{Library: library, Journal: book}
	gpus, err := engine.Observe(ctx, nil, func(_ context.Context, gpu string) (map[string]partition.Holder, error) {
		return sight.Holders(library, gpu)
	})
	if err != nil {
		return status.Node{}, err
	}
	for i := range gpus {
		for j := range gpus[i].Instances {
			gpus[i].Instances[j].Foreign = false
		}
	}
	surveyor := status.Inventory{Library: library, Proc: cfg.Proc}
	node := surveyor.Observe(gpus, sight)
	node.Name, node.DriverVersion = cfg.NodeName, version
	if blind != nil {
		node.Problems = append(node.Problems, "which pod has what is not known: "+blind.Error())
	}
	return node, nil
}

// readHolders is what the kubelet tells, and why where it does not.
func readHolders(ctx context.Context, socket string) (*devices.Snapshot, error) {
	kubelet, err := devices.NewKubelet(socket)
	if err != nil {
		return &devices.Snapshot{}, err
	}
	defer kubelet.Close()
	holdings, err := kubelet.ListAssignments(ctx)
	return devices.KubeletSnapshot(holdings), err
}

// emptyJournalStore is a journal's store that has nothing and keeps nothing.
type emptyJournalStore struct{}

var _ partition.JournalStore = emptyJournalStore{}

func (emptyJournalStore) Load() ([]byte, error)     { return nil, fs.ErrNotExist }
func (emptyJournalStore) Replace([]byte) error      { return fs.ErrPermission }
func (emptyJournalStore) SetAside() (string, error) { return "", fs.ErrPermission }
