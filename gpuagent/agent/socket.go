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

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/status"
)

// statusPath serves the observed state.
const statusPath = "/status"

// socketTimeout limits a request on the socket.
const socketTimeout = 5 * time.Second

// serveStatus serves the observed state on the node's socket until ctx ends. Only the agent's own user
// can connect, and only read.
func (r *reconciler) serveStatus(ctx context.Context) error {
	path := r.cfg.Socket()
	// A killed agent leaves its socket. The journal's lock excludes a second agent.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("serve agent socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("serve agent socket: %w", err)
	}
	// If the kubelet created the folder, every user can enter it.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = listener.Close()
		return fmt.Errorf("serve agent socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		node := r.snapshot.Load()
		if node == nil {
			http.Error(w, errNotObserved.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(node) // An error means that the client is gone.
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: socketTimeout, WriteTimeout: socketTimeout}
	if err := serveHTTP(ctx, server, listener); err != nil {
		return fmt.Errorf("serve agent socket: %w", err)
	}
	return nil
}

// FetchStatus returns the state that the agent on the socket observes.
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
	response, err := client.Do(request)
	if err != nil {
		return status.Node{}, fmt.Errorf("request status of the agent at %s: %w", socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return status.Node{}, fmt.Errorf("request status of the agent at %s: %s", socket, text)
	}
	var node status.Node
	if err := json.NewDecoder(response.Body).Decode(&node); err != nil {
		return status.Node{}, fmt.Errorf("request status of the agent at %s: %w", socket, err)
	}
	return node, nil
}

// ObserveDirect returns the state of the GPUs without an agent, from the driver and the kubelet. It writes
// nothing. It marks no instance as foreign, since only the agent's journal knows which ones are.
func ObserveDirect(ctx context.Context, cfg *Config, library nvml.Library) (status.Node, error) {
	if err := library.Init(); err != nil {
		return status.Node{}, errors.New(driverUnavailable(err).Message)
	}
	defer func() { _ = library.Shutdown() }()
	version, err := library.DriverVersion()
	if err != nil {
		return status.Node{}, err
	}
	holders, holdersErr := readHolders(ctx, cfg.PodResources)
	journal, err := partition.OpenJournal(emptyJournalStore{}, "here", "now")
	if err != nil {
		return status.Node{}, err
	}
	engine := partition.Engine{Library: library, Journal: journal}
	gpus, err := engine.Observe(ctx, nil, func(_ context.Context, gpu string) (map[string]partition.Holder, error) {
		return holders.Holders(library, gpu)
	})
	if err != nil {
		return status.Node{}, err
	}
	for i := range gpus {
		for j := range gpus[i].Instances {
			gpus[i].Instances[j].Foreign = false
		}
	}
	owner := func(pid uint32) ([]types.UID, *v1alpha1.OtherProcess, error) { return host.ProcessOwner(cfg.Proc, pid) }
	inventory := status.Inventory{Library: library, Running: engine.Running, ProcessOwner: owner}
	node := inventory.Observe(gpus, holders)
	node.Name, node.DriverVersion = cfg.NodeName, version
	if holdersErr != nil {
		node.Problems = append(node.Problems, "the assignment of devices to pods is unknown: "+holdersErr.Error())
	}
	return node, nil
}

// readHolders returns the devices' holders according to the kubelet; without it, none and an error.
func readHolders(ctx context.Context, socket string) (*devices.Snapshot, error) {
	kubelet, err := devices.NewKubelet(socket)
	if err != nil {
		return &devices.Snapshot{}, err
	}
	defer kubelet.Close()
	assignments, err := kubelet.ListAssignments(ctx)
	return devices.KubeletSnapshot(assignments), err
}

// emptyJournalStore is an empty, read-only journal store.
type emptyJournalStore struct{}

var _ partition.JournalStore = emptyJournalStore{}

func (emptyJournalStore) Load() ([]byte, error)     { return nil, fs.ErrNotExist }
func (emptyJournalStore) Replace([]byte) error      { return fs.ErrPermission }
func (emptyJournalStore) SetAside() (string, error) { return "", fs.ErrPermission }
