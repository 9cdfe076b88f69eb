// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import "syscall"

// endWithThread keeps an interrupt of the terminal from a process, which its test stops. The process ends with the thread that starts
// it, and so with the test binary.
func endWithThread() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
