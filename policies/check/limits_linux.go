// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"syscall"
	"time"
)

// setLimits limits the memory of this process, and its processor time for a number of
// policies. The kernel ends the process at the second limit.
func setLimits(limits Limits, policies int) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: limits.MemoryBytes, Max: limits.MemoryBytes}); err != nil {
		return err
	}
	seconds := uint64((startupCPU + time.Duration(policies+1)*limits.CPU) / time.Second)
	return syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds})
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // it never fails for the process itself
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
