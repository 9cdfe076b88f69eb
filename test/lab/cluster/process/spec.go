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
	// defaultReadyTimeout is for a machine on which much else runs. It only delays the report of a failure.
	defaultReadyTimeout = 5 * time.Minute
	defaultStopTimeout  = 10 * time.Second
)

// Spec describes one component. Either Path or Run is set.
type Spec struct {
	// Name is unique in its group and part of the names of its log and record files. It has
	// lower case letters, digits, '-' and '.', at most 63 characters.
	Name string

	// Path of the program. It runs in its own process group, so that Ctrl-C on a terminal
	// ends it only through Group.Stop.
	Path string
	// Args of the program, without its own name.
	Args []string
	// Env holds "KEY=value" entries. The program also inherits the variables in
	// inheritedEnv, and no others: the variables of a user's shell must not configure a
	// component.
	Env []string
	// WorkDir is the program's working directory; the default is that of this process.
	WorkDir string
	// User runs the program as another user, which only root can do; nil means the user of
	// this process.
	User *User

	// Run is a function that runs instead of Path, until its context ends. An earlier
	// return or a panic counts as a crash. Log(ctx) is its log file.
	Run func(ctx context.Context) error

	// Ready returns nil once the component serves. The group calls it every 50 ms from the
	// start on, each time with a context of ten seconds. If Ready is nil, the component is
	// ready as soon as it has started.
	Ready func(ctx context.Context) error
	// ReadyTimeout bounds the time until Ready succeeds; the default is five minutes.
	ReadyTimeout time.Duration
	// ReadyLater makes Start and Restart return as soon as the component has started. It is
	// Starting until Ready succeeds, for as long as that takes. If it ends before, the group
	// restarts it.
	ReadyLater bool
	// RestartAfter reports whether the group restarts the component after it has ended with
	// this exit code; nil means always. A component that is not restarted is Exited.
	RestartAfter func(exitCode int) bool
	// StopTimeout is the time after SIGTERM, or after the end of Run's context, before the
	// group kills the component. The default is ten seconds.
	StopTimeout time.Duration
}

// User is the user and group of a program.
type User struct{ UID, GID uint32 }

var nameFormat = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// withDefaults returns the spec with default timeouts, or an error that names an invalid
// field.
func (s Spec) withDefaults() (Spec, error) {
	if !nameFormat.MatchString(s.Name) {
		return s, fmt.Errorf("Spec.Name %q: must be lower case letters, digits, '-' and '.', at most 63 characters", s.Name)
	}
	if (s.Path == "") == (s.Run == nil) {
		return s, fmt.Errorf("Spec %s: set either Path or Run", s.Name)
	}
	if s.Run != nil && (len(s.Args) > 0 || len(s.Env) > 0 || s.WorkDir != "" || s.User != nil) {
		return s, fmt.Errorf("Spec %s: Args, Env, WorkDir and User belong to Path, not to Run", s.Name)
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
	// Starting components were launched and are not ready yet.
	Starting State = "Starting"
	// Running components are ready.
	Running State = "Running"
	// BackOff components have ended and wait until NextStart.
	BackOff State = "BackOff"
	// Stopping components are being ended by the group.
	Stopping State = "Stopping"
	// Stopped components were ended by the group.
	Stopped State = "Stopped"
	// Exited components have ended, and Spec.RestartAfter does not restart them.
	Exited State = "Exited"
)

// Status describes one component for a screen.
type Status struct {
	Name  string
	State State
	// PID of the program; 0 if none runs, and for a function.
	PID int
	// Restarts counts the starts after the first.
	Restarts int
	// StartedAt is the time of the last launch.
	StartedAt time.Time
	// LastExit describes how the component last ended, or why its restart failed ("signal:
	// killed"). It is empty until then.
	LastExit string
	// LastExitAt is the time of LastExit.
	LastExitAt time.Time
	// LastExitCode is the exit code of the program, 128 and the signal's number if a signal
	// ended it, and 1 for a function.
	LastExitCode int
	// NextStart is the time of the next launch in state BackOff.
	NextStart time.Time
	// LogPath is the file of the component's output.
	LogPath string
}

// List returns the status of each component, in the order of their start.
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

// Watch sends the list now and after every change until ctx ends, and then closes the
// channel. A slow reader receives the newest list, not every one.
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

// change updates a component's status and notifies the watchers.
func (g *Group) change(c *component, edit func(*Status)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	edit(&c.status)
	g.notifyLocked()
}

func (g *Group) notifyLocked() {
	for out := range g.watchers {
		select {
		case <-out: // replace a list that was not read yet
		default:
		}
		// The channel has room: only this function sends, and it holds the lock.
		out <- g.listLocked()
	}
}
