// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// callGate lets calls in while the library is there, any number at once, and one at a
// time, alone, who loads it or takes it away: a call into a library that was unloaded
// meanwhile would end the process.
type callGate struct {
	mu sync.Mutex
	// open tells that the library is there. Who is alone writes it.
	open bool
	// exclusive tells that somebody is alone, or waits to be.
	exclusive bool
	// activeCalls is how many calls have not returned.
	activeCalls int
	// changed is closed when somebody left; nil when nobody waits.
	changed chan struct{}
}

// enter lets a call in, after whoever is alone; ErrUninitialized where the library is
// not there.
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

// acquireExclusive waits until no call is inside and keeps all out until release. ErrTimeout where
// calls do not return within the limit; then nothing is changed.
func (g *callGate) acquireExclusive(limit time.Duration) (release func(), err error) {
	over := time.NewTimer(limit)
	defer over.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.exclusive {
		if !g.wait(over.C) {
			return nil, fmt.Errorf("another call has kept the driver for %s: %w", limit, nvml.ErrTimeout)
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

// wait gives the lock away until something changes; false where the time was over.
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
