// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io"
	"os/exec"
	"syscall"
)

// removeOnExitScript removes the folder when its input ends, that is, when the process on
// the other end of the pipe ends. The killed programs may still write a last file
// meanwhile, so it tries again.
const removeOnExitScript = `read -r _
n=0
while [ -e "$1" ] && [ $n -lt 100 ]; do rm -rf -- "$1" 2>/dev/null || sleep 0.1; n=$((n+1)); done`

// guard is a shell that removes a temporary folder if this process ends without doing so.
type guard struct {
	shell *exec.Cmd
	input io.Closer
}

func startGuard(dir string) (*guard, error) {
	shell := exec.Command("/bin/sh", "-c", removeOnExitScript, "sluice-cleanup", dir) //nolint:noctx // it outlives this process
	shell.Dir = "/"
	// The new session keeps signals of the terminal and of this process group away from the
	// shell.
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
