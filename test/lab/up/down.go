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

	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/process"
)

// Down stops the cluster in dir and, unless keep, removes the folder. It also stops
// the processes that a killed run left behind. A missing cluster is not an error.
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

// stopProcess stops the process that holds the lock of dir, and waits until it
// releases the lock. Only the running process holds the lock, so its pid is valid.
func stopProcess(ctx context.Context, dir string, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process %d: %w", pid, os.NewSyscallError("kill", err))
	}
	return installation.WaitFor(ctx, fmt.Sprintf("process %d to stop", pid), func(context.Context) (bool, error) {
		holder, err := cluster.Holder(dir)
		return holder != pid, err
	})
}

// cleanUp stops the leftover processes of a cluster, and removes its folder unless
// keep is set.
func cleanUp(dir string, keep bool) error {
	end := cluster.Remove
	if keep {
		end = cluster.Reap
	}
	err := end(dir)
	var held *process.LockHeldError
	switch {
	case errors.As(err, &held):
		return fmt.Errorf("process %d (another `sluice up` or `sluice down`) uses the cluster in %s; try again in a moment",
			held.PID, currentCaller().shellPath(dir))
	case errors.Is(err, fs.ErrNotExist): // another down was faster
		return nil
	default:
		return err
	}
}

// removeEmptyDirs removes dir if it contains only empty folders. Programs that were
// still running may have created these while a user removed dir.
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
