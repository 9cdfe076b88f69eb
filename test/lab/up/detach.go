// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	// backgroundVariable marks the environment of the background process.
	backgroundVariable = "SLUICE_UP_BACKGROUND"
	// readyDescriptor is the pipe on which the background process reports that the
	// cluster is ready.
	readyDescriptor = 3
	// logFile receives the output of the background process once the cluster is
	// ready.
	logFile = "logs/sluice-up.log"
)

// inBackground reports whether [Detach] started this process.
func inBackground() bool { return os.Getenv(backgroundVariable) != "" }

// Detach runs [Run] in a background process with its own session, and returns when
// the cluster is ready. Until then the background process writes to the output of
// this process. If ctx ends first, Detach stops the process and fails.
func Detach(ctx context.Context, options Options) error {
	options, err := options.validate()
	if err != nil {
		return err
	}
	if err := checkPrograms(); err != nil {
		return err
	}
	// Build in this process, because it may have a terminal that shows the progress.
	if _, err := Build(ctx, options); err != nil {
		return err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	child, err := options.backgroundCommand(writer)
	if err != nil {
		writer.Close()
		return err
	}
	err = child.Start()
	writer.Close()
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = child.Process.Signal(syscall.SIGTERM) })
	defer stop()
	// A byte means that the cluster is ready. The end of the pipe means that the
	// process has ended.
	if n, _ := reader.Read(make([]byte, 1)); n > 0 && stop() {
		return child.Process.Release()
	}
	return backgroundError(ctx, child.Wait())
}

// backgroundCommand returns the command of the background process, which outlives
// the caller's context.
func (o Options) backgroundCommand(ready *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self, "up", "--dir", o.Dir, //nolint:noctx // it outlives the context
		"--scheduler", o.Scheduler, "--nodes", strconv.Itoa(o.Nodes), "--port", strconv.Itoa(o.Port),
		"--webhook-replicas", strconv.Itoa(o.Replicas.Webhook), "--lifecycle-replicas", strconv.Itoa(o.Replicas.Lifecycle))
	if o.TimeScale != 0 {
		child.Args = append(child.Args, "--time-scale", formatScale(o.TimeScale))
	}
	child.Args[0] = os.Args[0] // messages name the program as the user called it
	child.Env = append(os.Environ(), backgroundVariable+"=1")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{ready}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return child, nil
}

// backgroundError returns the error of a background process that ended before the
// cluster was ready.
func backgroundError(ctx context.Context, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil || ctx.Err() != nil:
		return errStopped
	case errors.As(err, &exit) && exit.Exited():
		return errors.New("the cluster did not start; the reason is above")
	default:
		return fmt.Errorf("the cluster did not start: %w", err)
	}
}

// NewReadyFunc returns the function that [Run] calls when the cluster is ready. Call
// it before any process starts.
func NewReadyFunc(dir string) func() error {
	if !inBackground() {
		return func() error { return nil }
	}
	// A child process must not keep the pipe open.
	syscall.CloseOnExec(readyDescriptor)
	return func() error {
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		return signalReady(absolute)
	}
}

// signalReady redirects the output of this process to a log file, and reports to
// Detach that the cluster is ready.
func signalReady(dir string) error {
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	for _, standard := range []*os.File{os.Stdout, os.Stderr} {
		if err := redirectFile(standard, log); err != nil {
			return fmt.Errorf("redirect output to the log: %w", err)
		}
	}
	pipe := os.NewFile(readyDescriptor, "ready")
	_, err = fmt.Fprintln(pipe, "ready")
	return errors.Join(err, pipe.Close())
}
