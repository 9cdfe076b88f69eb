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

// attributes asks for nothing: only Linux can tie a program's life to this
// process's, and elsewhere the records are what ReapLeftovers goes by.
func attributes() *syscall.SysProcAttr { return nil }

// awaitEnd does nothing here: the wait that follows it does.
func awaitEnd(int) {}

// killGroup does nothing here: the program is in this process's own group.
func killGroup(int) {}

// birth names the start of a process, as ps prints it. It is empty for a process
// that does not exist, and where there is no ps.
func birth(pid int) (string, error) {
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
