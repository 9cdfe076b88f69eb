// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"io"
	"path"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"sluice.dev/test/lab/cluster/fakekubelet/toyshell"
)

// session runs exec and attach in one container.
type session struct {
	server *Server
	target target
}

// ExecInContainer runs a command in the simulated container.
func (s session) ExecInContainer(
	ctx context.Context, _, _, _ string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	return s.runShell(ctx, command, in, out, errOut, tty, resize)
}

// AttachContainer shows what the container writes from now on, until it ends. In a container
// with a terminal whose command is a shell it runs a shell, as if it were that one.
func (s session) AttachContainer(
	ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	if container := s.target.container; in != nil && tty && container.Stdin && container.TTY && isShell(container) {
		// The exit code is the container's, which does not end: attach has none.
		_ = s.runShell(ctx, []string{"sh"}, in, out, errOut, tty, resize)
		return nil
	}
	if in != nil {
		go func() { _, _ = io.Copy(io.Discard, in) }() // the container does not read
	}
	output := io.Discard
	if out != nil {
		output = out
	}
	return s.server.follow(ctx, s.target, logOptions{follow: true, since: time.Now(), tail: -1, limit: -1}, output)
}

// isShell reports whether a container runs a shell and nothing else.
func isShell(container *corev1.Container) bool {
	command := slices.Concat(container.Command, container.Args)
	return len(command) > 0 && slices.Contains([]string{"sh", "bash", "ash"}, path.Base(command[0])) &&
		!slices.Contains(command, "-c")
}

// runShell runs a command; an exit code other than 0 is an error.
func (s session) runShell(
	ctx context.Context, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	streams := toyshell.Streams{In: in, TTY: tty, Resize: terminalSizes(ctx, resize)}
	// A nil stream must not become an interface that is not nil.
	if out != nil {
		streams.Out = out
	}
	if errOut != nil {
		streams.Err = errOut
	}
	container := s.target.node.Container(s.target.pod, s.target.container)
	if code := toyshell.Run(ctx, container, command, streams); code != 0 {
		return utilexec.CodeExitError{Err: exitError(code), Code: code}
	}
	return nil
}

// exitError is the error of a command with an exit code.
type exitError int

func (e exitError) Error() string { return "command terminated with exit code " + strconv.Itoa(int(e)) }

// terminalSizes passes on sizes until ctx ends or the user is gone.
func terminalSizes(ctx context.Context, resize <-chan remotecommand.TerminalSize) <-chan toyshell.Size {
	if resize == nil {
		return nil
	}
	sizes := make(chan toyshell.Size)
	go func() {
		defer close(sizes)
		for {
			select {
			case size, open := <-resize:
				if !open {
					return
				}
				select {
				case sizes <- toyshell.Size{Width: int(size.Width), Height: int(size.Height)}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
