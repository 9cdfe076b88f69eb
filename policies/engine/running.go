// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"syscall"
	"time"

	"sluice.dev/api/policytime"
)

// running are the evaluations of this process. An evaluation that takes too long is the fault of its policy and its object only if
// the process worked for it all the time: on a machine without a free processor, or after the machine slept, it is not.
var running evaluations

type evaluations struct {
	mu     sync.Mutex
	number int
	// together is how long all evaluations have run, added up, until changed.
	together time.Duration
	changed  time.Time
}

// instant is a moment in the process.
type instant struct {
	time time.Time
	// together is how long all evaluations have run until then, added up, and processors how long processors have worked for the process.
	together, processors time.Duration
}

// begin counts one more evaluation. Its end is to follow.
func (e *evaluations) begin() instant {
	i := e.change(1)
	i.processors = processorTime()
	return i
}

// end counts one less.
func (e *evaluations) end() instant { return e.change(-1) }

func (e *evaluations) change(by int) instant {
	now := policytime.MachineNow()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.together += time.Duration(e.number) * now.Sub(e.changed)
	e.number, e.changed = e.number+by, now
	return instant{time: now, together: e.together}
}

// worked reports whether the process had the processors for its evaluations since then: for four fifths of their time at least.
// Others use the machine, too, and the garbage collector runs.
func (i instant) worked(end instant, processors time.Duration) bool {
	return processors-i.processors >= (end.together-i.together)*4/5
}

// processorTime returns how long processors have worked for this process.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0 // which blames no policy
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
