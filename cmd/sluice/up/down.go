// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"sluice.dev/test/cluster"
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
		fmt.Fprintf(output, "stopping the cluster in %s\n", relative(dir))
		if err := stop(ctx, dir, pid); err != nil {
			return err
		}
	} else if !cluster.Exists(dir) {
		fmt.Fprintf(output, "nothing runs in %s\n", relative(dir))
	}
	if keep {
		return cluster.Reap(dir)
	}
	return cluster.Remove(dir)
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
