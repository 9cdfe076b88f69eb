// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// Decision is what follows from a question. Whoever carries it out records the
// warnings first, then the status, and stops the workload last: all three may be
// done twice, and none may be left out because of a crash before.
type Decision struct {
	// Status is what is to be recorded; conditions and what is shown are left as they
	// were.
	Status v1alpha1.WorkloadClockStatus
	// Warnings are to be recorded as Notices.
	Warnings []Warning
	// Stop tells that the workload is to be stopped, as Status.Stopped says.
	Stop bool
	// Stopped tells that Status.Stopped is new with this decision.
	Stopped bool
	// Released tells that a stop no longer holds: its mark is to be taken from the
	// workload.
	Released bool
	// Reset tells that the workload's time begins anew.
	Reset bool
	// WouldStop tells that a dry run keeps the workload from being stopped, and why.
	WouldStop v1alpha1.EndReason
	// Next is when to ask again if nothing is seen before; zero is never.
	Next time.Time
}

// Warning is one message to a workload's people that it will end.
type Warning struct {
	// Reason is why it will: MaxRuntime or Idle.
	Reason v1alpha1.EndReason
	// Lead is how long before the end the warning was due.
	Lead time.Duration
	// DueAt is when it was due.
	DueAt time.Time
	// Deadline is when it ends.
	Deadline time.Time
	// LimitSeconds is the limit in accumulated running time, for MaxRuntime.
	LimitSeconds int64
	// Superseded is true where a warning given at the same time says all that this
	// one would have said.
	Superseded bool
}
