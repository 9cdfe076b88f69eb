// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"testing"
	"time"
)

const (
	patience = 30 * time.Second
	askEvery = 50 * time.Millisecond
)

// Eventually waits until condition returns nil, and fails the test at once with
// its last error if it does not within 30 seconds.
func Eventually(t testing.TB, condition func() error) {
	t.Helper()
	EventuallyWithin(t, patience, condition)
}

// EventuallyWithin is Eventually with another patience. The condition is asked at
// least once, also where within is 0.
func EventuallyWithin(t testing.TB, within time.Duration, condition func() error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %v", within, err)
		case <-tick.C:
		}
	}
}
