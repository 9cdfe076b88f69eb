// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package engine

import (
	"time"

	"sluice.dev/api/policytime"
)

// threadTimer tells the time since it was made: on other systems the command line evaluates
// policies, and nothing else waits.
type threadTimer struct{ start time.Time }

func newThreadTimer() (timer *threadTimer, release func()) {
	return &threadTimer{start: policytime.MachineNow()}, func() {}
}

func (t *threadTimer) used() time.Duration { return policytime.MachineNow().Sub(t.start) }
