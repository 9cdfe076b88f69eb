// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// callGate admits any number of calls while the library is loaded. Loading and unloading it
// requires exclusive access: a call into an unloaded library would end the process.
type callGate struct {
	mu sync.Mutex
	// open reports whether the library is loaded. Only the exclusive holder writes it.
	open bool
	// exclusive reports whether a goroutine has, or waits for, exclusive access.
	exclusive bool
	// activeCalls is the number of calls in progress.
	activeCalls int
	// changed is closed when a call or an exclusive access ends; nil without waiters.
	changed chan struct{}
}

// enter admits a call, after an exclusive access in progress. It returns ErrUninitialized if the
// library is not loaded.
func (g *callGate) enter() (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.exclusive {
		g.wait(nil)
	}
	if !g.open {
		return nil, nvml.ErrUninitialized
	}
	g.activeCalls++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.activeCalls--
		g.broadcast()
	}, nil
}

// acquireExclusive waits until no call is in progress and blocks new ones until release. It returns
// ErrTimeout, and changes nothing, if calls do not return within the limit.
func (g *callGate) acquireExclusive(limit time.Duration) (release func(), err error) {
	over := time.NewTimer(limit)
	defer over.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.exclusive {
		if !g.wait(over.C) {
			return nil, fmt.Errorf("another call has blocked the driver for %s: %w", limit, nvml.ErrTimeout)
		}
	}
	g.exclusive = true
	for g.activeCalls > 0 {
		if !g.wait(over.C) {
			g.exclusive = false
			g.broadcast()
			return nil, fmt.Errorf("%d calls of the driver have not returned for %s: %w", g.activeCalls, limit, nvml.ErrTimeout)
		}
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.exclusive = false
		g.broadcast()
	}, nil
}

// wait releases the lock until a change. It returns false after the time limit.
func (g *callGate) wait(over <-chan time.Time) bool {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	changed := g.changed
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-changed:
		return true
	case <-over:
		return false
	}
}

func (g *callGate) broadcast() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
