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
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/filelock"
)

const (
	// backgroundVariable tells a process that it is the one in the background.
	backgroundVariable = "SLUICE_UP_BACKGROUND"
	// readyDescriptor is where that process writes a line when all is ready.
	readyDescriptor = 3
	// logFile is where it writes from then on.
	logFile = "logs/sluice-up.log"
)

// inBackground reports whether this process was started by [Detach].
func inBackground() bool { return os.Getenv(backgroundVariable) != "" }

// Detach runs [Run] in a process of its own, in a session of its own so that it
// outlives the terminal, and returns when everything is ready there. Until then
// that process's output is this one's. When ctx ends first, it is stopped; that
// is an error, for whoever waits for a cluster has none.
func Detach(ctx context.Context, options Options) error {
	options, err := options.validate()
	if err != nil {
		return err
	}
	if err := checkPrograms(); err != nil {
		return err
	}
	// Built here, where there may be a terminal to show the progress on.
	if _, err := Build(ctx, options.Output, options.Scheduler); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	// Not CommandContext: the background process outlives ctx once it is ready.
	child := exec.Command(self, "up", "--dir", options.Dir, //nolint:noctx // it outlives the context
		"--scheduler", options.Scheduler, "--nodes", strconv.Itoa(options.Nodes), "--port", strconv.Itoa(options.Port))
	if options.TimeScale != 0 {
		child.Args = append(child.Args, "--time-scale", formatScale(options.TimeScale))
	}
	child.Args[0] = os.Args[0] // the screen says what to type
	child.Env = append(os.Environ(), backgroundVariable+"=1")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{writer}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		writer.Close()
		return fmt.Errorf("starting in the background: %w", err)
	}
	writer.Close()
	stop := context.AfterFunc(ctx, func() { _ = child.Process.Signal(syscall.SIGTERM) })
	defer stop()
	// A word says that all is ready; an end without one that the process has ended.
	if n, _ := reader.Read(make([]byte, 1)); n > 0 && stop() {
		return child.Process.Release()
	}
	return backgroundError(ctx, child.Wait())
}

// backgroundError says why there is no cluster, from how the background process ended.
func backgroundError(ctx context.Context, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil || ctx.Err() != nil:
		return errStopped
	case errors.As(err, &exit) && exit.Exited():
		return errors.New("the cluster did not come up; the reason is above")
	default:
		return fmt.Errorf("the cluster did not come up: %w", err)
	}
}

// signalReady tells the process that detached this one that all is ready, and
// turns this one's output to a log file: the terminal is somebody else's now.
func signalReady(dir string) error {
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	for _, standard := range []*os.File{os.Stdout, os.Stderr} {
		if err := redirectFile(standard, log); err != nil {
			return fmt.Errorf("turning the output to the log: %w", err)
		}
	}
	pipe := os.NewFile(readyDescriptor, "ready")
	_, err = fmt.Fprintln(pipe, "ready")
	return errors.Join(err, pipe.Close())
}

// NewReadyFunc is what [Run] is to call when all is ready. Ask for it before anything is
// started.
func NewReadyFunc(dir string) func() error {
	if !inBackground() {
		return func() error { return nil }
	}
	// The programs that are started from here must not hold the pipe open.
	syscall.CloseOnExec(readyDescriptor)
	return func() error {
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		return signalReady(absolute)
	}
}

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
		fmt.Fprintf(output, "stopping the cluster in %s\n", currentCaller().shellPath(dir))
		if err := stopProcess(ctx, dir, pid); err != nil {
			return err
		}
	}
	nothing := pid == 0 && !cluster.Exists(dir)
	if err := cleanUp(dir, keep); err != nil {
		return err
	}
	if nothing {
		fmt.Fprintf(output, "nothing runs in %s\n", currentCaller().shellPath(dir))
	}
	return nil
}

// cleanUp ends what is left of a cluster that nobody runs any more.
func cleanUp(dir string, keep bool) error {
	end := cluster.Remove
	if keep {
		end = cluster.Reap
	}
	err := end(dir)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Errorf("process %d has the cluster in %s by now: another up or down; ask again in a moment", held.PID, currentCaller().shellPath(dir))
	case errors.Is(err, fs.ErrNotExist): // another down was quicker
		return nil
	default:
		return err
	}
}

// stopProcess asks the process that holds dir to end, and waits until it has let go. It
// holds the folder's lock, so it is no stranger of the same number.
func stopProcess(ctx context.Context, dir string, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping process %d: %w", pid, os.NewSyscallError("kill", err))
	}
	return waitFor(ctx, fmt.Sprintf("process %d to stop", pid), func(context.Context) (bool, error) {
		holder, err := cluster.Holder(dir)
		return holder != pid, err
	})
}
