// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// longestPath is how long the path of a socket may be, in bytes: the kernel's limit.
const longestPath = 107

// Listen makes the socket at a path, for its owner alone. One that a server left
// behind is replaced; the error says where another server is on it, or where
// something else lies there.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > longestPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, and a socket's at most %d; choose a shorter one", path, len(path), longestPath)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		// Before bind: there is no moment at which others could connect.
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
		return errors.New("something that is not a socket lies there; choose another path or remove it")
	}
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		connection.Close()
		return errors.New("another server is on it; stop it first")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
