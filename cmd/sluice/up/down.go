// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/filelock"
)

// Down stops the cluster in dir and, unless keep, removes the folder. It also ends
// what a killed run left running. A missing cluster is no error.
func Down(ctx context.Context, dir string, keep bool, output io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	pid, err := cluster.Holder(dir)
	if err != nil {
		return err
	}
	if pid != 0 {
		fmt.Fprintf(output, "Stopping the cluster in %s\n", currentCaller().shellPath(dir))
		if err := stopProcess(ctx, dir, pid); err != nil {
			return err
		}
	}
	missing := pid == 0 && !cluster.Exists(dir)
	if err := cleanUp(dir, keep); err != nil {
		return err
	}
	if missing {
		fmt.Fprintf(output, "No cluster in %s\n", currentCaller().shellPath(dir))
	}
	return nil
}

// stopProcess ends the process that holds dir, and waits until it releases the
// folder's lock. Only that process can hold the lock, so the pid is right.
func stopProcess(ctx context.Context, dir string, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process %d: %w", pid, os.NewSyscallError("kill", err))
	}
	return waitFor(ctx, fmt.Sprintf("process %d to stop", pid), func(context.Context) (bool, error) {
		holder, err := cluster.Holder(dir)
		return holder != pid, err
	})
}

// cleanUp ends the leftover processes of a cluster, and removes its folder unless
// keep.
func cleanUp(dir string, keep bool) error {
	end := cluster.Remove
	if keep {
		end = cluster.Reap
	}
	err := end(dir)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Errorf("process %d, another up or down, holds the cluster in %s; try again in a moment",
			held.PID, currentCaller().shellPath(dir))
	case errors.Is(err, fs.ErrNotExist): // another down was faster
		return nil
	default:
		return err
	}
}

// removeEmptyDirs removes dir if it only has empty folders. Programs that were still
// running may have created some while a user removed it.
func removeEmptyDirs(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeEmptyDirs(filepath.Join(dir, entry.Name()))
		}
	}
	_ = os.Remove(dir) // fails if it is not empty
}
