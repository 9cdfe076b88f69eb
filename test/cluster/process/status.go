// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"time"
)

// State of a component.
type State string

const (
	// Starting: launched, and not yet ready.
	Starting State = "Starting"
	// Running: launched and ready.
	Running State = "Running"
	// BackOff: it ended by itself, and waits until NextStart.
	BackOff State = "BackOff"
	// Stopping: it was told to end.
	Stopping State = "Stopping"
	// Stopped: it ended because it was told to.
	Stopped State = "Stopped"
)

// Status is what a screen shows of one component.
type Status struct {
	Name  string
	State State
	// PID of the program, 0 where none runs and for a component in this process.
	PID int
	// Restarts counts the starts after the first.
	Restarts int
	// StartedAt is when it was last launched.
	StartedAt time.Time
	// LastExit says how it last ended or why it could not be started again
	// ("signal: killed"); empty until then.
	LastExit string
	// LastExitAt goes with LastExit.
	LastExitAt time.Time
	// NextStart is when a component in BackOff is launched again.
	NextStart time.Time
	// LogPath is where its output goes.
	LogPath string
}

// List returns the state of each component, in the order of their start.
func (g *Group) List() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.listLocked()
}

func (g *Group) listLocked() []Status {
	list := make([]Status, 0, len(g.components))
	for _, c := range g.components {
		list = append(list, c.status)
	}
	return list
}

// Watch sends the list now and after every change, until ctx ends; then the
// channel is closed. Who reads slowly gets the newest list, not every one.
func (g *Group) Watch(ctx context.Context) <-chan []Status {
	out := make(chan []Status, 1)
	g.mu.Lock()
	g.watchers[out] = struct{}{}
	out <- g.listLocked()
	g.mu.Unlock()
	context.AfterFunc(ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.watchers, out)
		close(out)
	})
	return out
}

// change edits a component's status and tells the watchers.
func (g *Group) change(c *component, edit func(*Status)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	edit(&c.status)
	g.notifyLocked()
}

func (g *Group) notifyLocked() {
	for out := range g.watchers {
		select {
		case <-out: // the list that nobody has read yet is out of date
		default:
		}
		// There is room: only this function sends, and it holds the lock.
		out <- g.listLocked()
	}
}
