// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// terminalSizes are the sizes of a terminal: the present one, then each change.
type terminalSizes struct {
	ctx      context.Context
	terminal *os.File
	changes  chan os.Signal
	cancel   context.CancelFunc
}

// watchTerminalSize returns the sizes of a terminal until ctx ends.
func watchTerminalSize(ctx context.Context, terminal *os.File) *terminalSizes {
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan os.Signal, 1)
	changes <- syscall.SIGWINCH // the present size
	signal.Notify(changes, syscall.SIGWINCH)
	return &terminalSizes{ctx: ctx, terminal: terminal, changes: changes, cancel: cancel}
}

func (s *terminalSizes) stop() {
	signal.Stop(s.changes)
	s.cancel()
}

// Next implements remotecommand.TerminalSizeQueue: it waits for the next size, and returns nil at the end.
func (s *terminalSizes) Next() *remotecommand.TerminalSize {
	select {
	case <-s.ctx.Done():
		return nil
	case <-s.changes:
	}
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
}
