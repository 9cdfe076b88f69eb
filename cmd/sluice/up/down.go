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

// Down stops what runs in dir and, unless keep, removes the folder. Where the
// process that ran it was killed, what that left running is ended as well. It is
// no error if nothing is there.
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
		fmt.Fprintf(output, "stopping the cluster in %s\n", theCaller().path(dir))
		if err := stop(ctx, dir, pid); err != nil {
			return err
		}
	}
	nothing := pid == 0 && !cluster.Exists(dir)
	if err := release(dir, keep); err != nil {
		return err
	}
	if nothing {
		fmt.Fprintf(output, "nothing runs in %s\n", theCaller().path(dir))
	}
	return nil
}

// release ends what is left of a cluster that nobody runs any more.
func release(dir string, keep bool) error {
	end := cluster.Remove
	if keep {
		end = cluster.Reap
	}
	err := end(dir)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Errorf("process %d has the cluster in %s by now: another up or down; ask again in a moment", held.PID, theCaller().path(dir))
	case errors.Is(err, fs.ErrNotExist): // another down was quicker
		return nil
	default:
		return err
	}
}

// stop asks the process that holds dir to end, and waits until it has let go. It
// holds the folder's lock, so it is no stranger of the same number.
func stop(ctx context.Context, dir string, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping process %d: %w", pid, os.NewSyscallError("kill", err))
	}
	return await(ctx, fmt.Sprintf("process %d to stop", pid), func(context.Context) (bool, error) {
		holder, err := cluster.Holder(dir)
		return holder != pid, err
	})
}
