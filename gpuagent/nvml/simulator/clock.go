// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"sync"
	"time"
)

// Clock is the time in which the driver works.
type Clock interface {
	// Now is the present instant.
	Now() time.Time
	// Sleep returns when so much time has passed.
	Sleep(time.Duration)
}

// Wall is the machine's time.
func Wall() Clock { return wall{} }

type wall struct{}

func (wall) Now() time.Time        { return time.Now() }
func (wall) Sleep(d time.Duration) { time.Sleep(d) }

// SkipClock is a time that only sleepers move: Sleep returns at once, and that
// much later it is. It is safe for concurrent use.
type SkipClock struct {
	mu  sync.Mutex
	now time.Time
}

// Skipping is a clock that starts there and waits for nobody.
func Skipping(from time.Time) *SkipClock { return &SkipClock{now: from} }

// Now implements [Clock].
func (c *SkipClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Sleep implements [Clock].
func (c *SkipClock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(max(0, d))
}
