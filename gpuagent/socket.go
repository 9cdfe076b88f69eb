// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

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

	"sluice.dev/gpuagent/picture"
)

// statusPath is where the picture is asked for.
const statusPath = "/status"

// socketTimeout is how long a question on the socket may take.
const socketTimeout = 5 * time.Second

// serve tells on the node's socket what is to be seen, to its own user alone, until
// ctx ends. It takes no orders.
func (a *agent) serve(ctx context.Context) error {
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
		node := a.shown.Load()
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

// Ask is what the agent that serves the socket sees.
func Ask(ctx context.Context, socket string) (picture.Node, error) {
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
		return picture.Node{}, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return picture.Node{}, fmt.Errorf("asking the agent at %s: %w", socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return picture.Node{}, fmt.Errorf("asking the agent at %s: %s", socket, text)
	}
	var node picture.Node
	if err := json.NewDecoder(answer.Body).Decode(&node); err != nil {
		return picture.Node{}, fmt.Errorf("asking the agent at %s: %w", socket, err)
	}
	return node, nil
}
