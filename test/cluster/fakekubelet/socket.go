// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// maxSocketPath is what fits into a Unix socket's address (108 bytes on Linux),
// with the zero at its end.
const maxSocketPath = 107

// socketPath returns the path of a node's PodResources socket, or says by how
// much Dir is too long for it.
func socketPath(dir, node string) (string, error) {
	path := filepath.Join(nodeDir(dir, node), "pod-resources", "kubelet.sock")
	if over := len(path) - maxSocketPath; over > 0 {
		return "", fmt.Errorf("dir %q: is %d bytes too long: the socket's path %s may have %d; choose a shorter one", dir, over, path, maxSocketPath)
	}
	return path, nil
}

func nodeDir(dir, node string) string { return filepath.Join(dir, "nodes", node) }

// listen opens a socket that only this user can connect to. One that an earlier
// process left is replaced; the caller holds the node's lock, so no living
// process serves it.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("PodResources socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("PodResources socket: remove the old one: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("PodResources socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("PodResources socket: %w", err)
	}
	return listener, nil
}
