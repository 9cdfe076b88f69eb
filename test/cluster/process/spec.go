// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"
)

const (
	defaultReadyTimeout = time.Minute
	defaultStopTimeout  = 10 * time.Second
)

// Spec describes one component. Either Path or Run is set.
type Spec struct {
	// Name is unique in its group, and the name of its log and record files:
	// lower case letters, digits, '-' and '.', at most 63 characters.
	Name string

	// Path of the program. It is started in a process group of its own, so
	// that Ctrl-C on a terminal reaches it only through Group.Stop.
	Path string
	// Args of the program, without its own name.
	Args []string
	// Env holds "KEY=value" entries. Beyond them a program is given only what
	// inheritedEnv lists: a variable that happens to be set in a person's shell
	// must not configure a component.
	Env []string
	// WorkDir is the program's working directory; the default is this one's.
	WorkDir string

	// Run is a component that lives in this process instead of Path. It runs
	// until its context ends; to return earlier, or to panic, is to crash.
	// Log(ctx) is its log file.
	Run func(ctx context.Context) error

	// Ready returns nil once the component serves. It is asked every 50 ms from
	// the start on, each time with a context of two seconds. Nil means that the
	// component is ready as soon as it is started.
	Ready func(ctx context.Context) error
	// ReadyTimeout is how long a start may take until Ready says yes; the
	// default is a minute.
	ReadyTimeout time.Duration
	// StopTimeout is how long the component may take to end after SIGTERM (or
	// after its context ended) before it is killed; the default is ten seconds.
	StopTimeout time.Duration
}

var nameFormat = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// withDefaults returns the spec with its time-outs filled in, or says which
// field is wrong.
func (s Spec) withDefaults() (Spec, error) {
	if !nameFormat.MatchString(s.Name) {
		return s, fmt.Errorf("Spec.Name %q: must be lower case letters, digits, '-' and '.', at most 63 characters", s.Name)
	}
	if (s.Path == "") == (s.Run == nil) {
		return s, fmt.Errorf("Spec %s: set either Path or Run", s.Name)
	}
	if s.Run != nil && (len(s.Args) > 0 || len(s.Env) > 0 || s.WorkDir != "") {
		return s, fmt.Errorf("Spec %s: Args, Env and WorkDir belong to Path, not to Run", s.Name)
	}
	if s.ReadyTimeout < 0 || s.StopTimeout < 0 {
		return s, errors.New("Spec " + s.Name + ": ReadyTimeout and StopTimeout must not be negative")
	}
	if s.ReadyTimeout == 0 {
		s.ReadyTimeout = defaultReadyTimeout
	}
	if s.StopTimeout == 0 {
		s.StopTimeout = defaultStopTimeout
	}
	return s, nil
}

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
