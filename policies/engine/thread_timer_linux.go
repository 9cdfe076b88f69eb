// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// threadTimer tells the processor time of one thread.
type threadTimer struct{ clock int32 }

// newThreadTimer binds the goroutine to its thread until release, and returns the thread's timer.
func newThreadTimer() (timer *threadTimer, release func()) {
	runtime.LockOSThread()
	// The clock of a thread by its number: clock_getres(2) and CPUCLOCK_PERTHREAD_MASK,
	// CPUCLOCK_SCHED in linux/posix-timers.h.
	const perThread, scheduled = 4, 2
	return &threadTimer{clock: int32(^unix.Gettid())<<3 | perThread | scheduled}, runtime.UnlockOSThread
}

// used returns the processor time that the thread has used. Any goroutine may call it.
func (t *threadTimer) used() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(t.clock, &used); err != nil {
		return 0 // the thread has ended
	}
	return time.Duration(used.Nano())
}
