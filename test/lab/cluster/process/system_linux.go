// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes gives a program its own process group and makes the kernel kill it when
// the thread that forked it ends.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitForExitStatus returns when the child has ended, and leaves the exit status for Wait.
func waitForExitStatus(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killGroup kills the remaining processes of the group that the child pid leads. Usually
// none remains, which is the ignored error.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// startID identifies the start of a process by the boot and the clock ticks since then. It
// returns "" for a process that does not exist, and for a zombie without threads, which
// holds no file and no port.
func startID(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// The second field is the program's name in parentheses, which may contain any
	// characters. The needed fields are the 3rd (state), the 20th (number of threads) and
	// the 22nd (start).
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	fields := strings.Fields(string(rest))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields)+2)
	}
	state, threads := fields[0], fields[17]
	if state == "X" || state == "Z" && (threads == "0" || threads == "1") {
		return "", nil
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}
