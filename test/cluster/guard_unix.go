// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"io"
	"os/exec"
	"syscall"
)

// removeOnExitScript waits for the end of its input, which is the end of the process
// that holds the other end, and removes the folder. The programs die at the same
// moment, and may write a last file while it does.
const removeOnExitScript = `read -r _
n=0
while [ -e "$1" ] && [ $n -lt 100 ]; do rm -rf -- "$1" 2>/dev/null || sleep 0.1; n=$((n+1)); done`

// guard is a shell that removes a temporary folder when this process ends without
// having done so.
type guard struct {
	shell *exec.Cmd
	input io.Closer
}

func startGuard(dir string) (*guard, error) {
	shell := exec.Command("/bin/sh", "-c", removeOnExitScript, "sluice-cleanup", dir) //nolint:noctx // it is there to outlive this process
	shell.Dir = "/"
	// A session of its own: what a terminal sends to this process, and what
	// ends this process's group, must not reach it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	return &guard{shell: shell, input: input}, nil
}

// dismiss ends the guard. It does nothing on a nil guard.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	_ = g.input.Close()
	_ = g.shell.Wait()
}
