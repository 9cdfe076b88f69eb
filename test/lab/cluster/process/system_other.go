// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// processAttributes sets nothing: only Linux can end a program together with this process.
// On other systems ReapLeftovers uses the records.
func processAttributes() *syscall.SysProcAttr { return nil }

// waitForExitStatus does nothing on this system; the following Wait does.
func waitForExitStatus(int) {}

// killGroup does nothing on this system: the program is in this process's own group.
func killGroup(int) {}

// startID identifies the start of a process, as ps prints it. It returns "" for a process
// that does not exist, and if ps is missing.
func startID(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return "", nil
	}
	state, start, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if strings.HasPrefix(state, "Z") {
		return "", nil
	}
	return strings.TrimSpace(start), nil
}
