// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"sluice.dev/test/lab/cluster/fakekubelet/streaming"
	"sluice.dev/test/lab/cluster/process"
)

// KubeletPort is the port of the kubelet's API in the status of a simulated node. Nothing
// listens on it: the API server connects to it through its proxy (launcher.Config), which
// leads to StreamSocket.
const KubeletPort = 10250

// StreamSocket returns the Unix socket on which the simulated nodes of a folder serve the
// kubelet's API. Only this user can connect to it.
func StreamSocket(dir string) string { return filepath.Join(dir, "nodes", "kubelets.sock") }

// openStreams opens the socket and returns the server of the nodes' streams. The lock keeps
// another process from replacing the socket.
func openStreams(ctx context.Context, cfg Config, kubelets []*kubelet) (*streaming.Server, net.Listener, func(), error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("dir %q: %w", cfg.Dir, err)
	}
	log := cfg.Log
	if log == nil {
		log = slog.Default()
	}
	server, err := streaming.NewServer(*cfg.Streams, log)
	if err != nil {
		return nil, nil, nil, err
	}
	socket := StreamSocket(dir)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, nil, nil, fmt.Errorf("create the folder of the nodes: %w", err)
	}
	lock, err := process.TryLock(socket + ".lock")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("only one process can serve the streams of pods: %w", err)
	}
	unlock := func() { _ = lock.Unlock() } // the end of the process unlocks it as well
	listener, err := listen(ctx, socket)
	if err != nil {
		unlock()
		return nil, nil, nil, err
	}
	for _, k := range kubelets {
		k.streams = server
	}
	return server, listener, unlock, nil
}
