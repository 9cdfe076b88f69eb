// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// gate lets calls in while the library is there, any number at once, and one at a
// time, alone, who loads it or takes it away: a call into a library that was unloaded
// meanwhile would end the process.
type gate struct {
	mu sync.Mutex
	// open tells that the library is there. Who is alone writes it.
	open bool
	// taken tells that somebody is alone, or waits to be.
	taken bool
	// inside is how many calls have not returned.
	inside int
	// changed is closed when somebody left; nil when nobody waits.
	changed chan struct{}
}

// enter lets a call in, after whoever is alone; ErrUninitialized where the library is
// not there.
func (g *gate) enter() (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.taken {
		g.wait(nil)
	}
	if !g.open {
		return nil, nvml.ErrUninitialized
	}
	g.inside++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside--
		g.tellAll()
	}, nil
}

// alone waits until no call is inside and keeps all out until release. ErrTimeout where
// calls do not return within the limit; then nothing is changed.
func (g *gate) alone(limit time.Duration) (release func(), err error) {
	over := time.NewTimer(limit)
	defer over.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.taken {
		if !g.wait(over.C) {
			return nil, fmt.Errorf("another call has kept the driver for %s: %w", limit, nvml.ErrTimeout)
		}
	}
	g.taken = true
	for g.inside > 0 {
		if !g.wait(over.C) {
			g.taken = false
			g.tellAll()
			return nil, fmt.Errorf("%d calls of the driver have not returned for %s: %w", g.inside, limit, nvml.ErrTimeout)
		}
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.taken = false
		g.tellAll()
	}, nil
}

// wait gives the lock away until something changes; false where the time was over.
func (g *gate) wait(over <-chan time.Time) bool {
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

func (g *gate) tellAll() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}
