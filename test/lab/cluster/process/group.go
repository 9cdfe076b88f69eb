// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// ErrStopped is the error of a start in a stopped group.
var ErrStopped = errors.New("the process group was stopped")

// Group is a set of components that run together. Its methods are safe for concurrent use.
type Group struct {
	dir string

	mu         sync.Mutex
	components []*component // in the order of their start
	watchers   map[chan []Status]struct{}
	stopped    bool

	stopLogRotation context.CancelFunc
}

// NewGroup returns an empty group that keeps its logs in dir/logs and the records of its
// programs in dir/run. It creates both with mode 0700. Two groups must not share a dir. The
// caller must stop the group.
func NewGroup(dir string) (*Group, error) {
	for _, sub := range []string{logsIn(dir), recordsIn(dir)} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, fmt.Errorf("create folder of the process group: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &Group{dir: dir, watchers: map[chan []Status]struct{}{}, stopLogRotation: cancel}
	go g.limitLogs(ctx)
	return g, nil
}

// Start launches a component and returns when it is ready. If the component ends first, is
// not ready within Spec.ReadyTimeout, or ctx ends, Start kills it and removes it from the
// group. The error is then a *StartError with the end of the log. After a successful Start
// the group restarts the component whenever it ends.
func (g *Group) Start(ctx context.Context, spec Spec) error {
	spec, err := spec.withDefaults()
	if err != nil {
		return err
	}
	c, err := g.add(spec)
	if err != nil {
		return err
	}
	if err := rotateLog(c.logPath); err != nil {
		g.abandon(c)
		return fmt.Errorf("start %s: %w", spec.Name, err)
	}
	in, failed := g.launchAndWait(ctx, c)
	if failed != nil {
		g.abandon(c)
		return failed
	}
	go g.supervise(c, in)
	return nil
}

// abandon removes a component that did not start.
func (g *Group) abandon(c *component) {
	g.remove(c)
	close(c.done)
}

// Restart ends the current run of a component and returns when the next one is ready.
func (g *Group) Restart(ctx context.Context, name string) error {
	c, err := g.find(name)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	select {
	case c.restart <- result:
	case <-c.done:
		return fmt.Errorf("restart %s: %w", name, ErrStopped)
	case <-ctx.Done():
		return fmt.Errorf("restart %s: %w", name, context.Cause(ctx))
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("restart %s: %w", name, context.Cause(ctx))
	}
}

// Remove stops one component, removes it from the group and returns its last status. When
// ctx ends it kills the component.
func (g *Group) Remove(ctx context.Context, name string) (Status, error) {
	c, err := g.find(name)
	if err != nil {
		return Status{}, err
	}
	err = c.stop(ctx)
	return g.remove(c), err
}

// Stop ends all components, the last started first: with SIGTERM, and with SIGKILL after
// the component's StopTimeout. When ctx ends, it kills the remaining components at once. A
// Spec.Run that ignores its context continues to run, which is an error. The group stays
// stopped.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	g.stopped = true
	order := slices.Clone(g.components)
	g.mu.Unlock()
	defer g.stopLogRotation()

	slices.Reverse(order)
	var errs []error
	for _, c := range order {
		errs = append(errs, c.stop(ctx))
	}
	return errors.Join(errs...)
}

func (g *Group) add(spec Spec) (*component, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return nil, fmt.Errorf("start %s: %w", spec.Name, ErrStopped)
	}
	for _, other := range g.components {
		if other.spec.Name == spec.Name {
			return nil, fmt.Errorf("start %s: the group already has a component of this name", spec.Name)
		}
	}
	c := newComponent(spec, filepath.Join(logsIn(g.dir), spec.Name+".log"))
	g.components = append(g.components, c)
	g.notifyLocked()
	return c, nil
}

func (g *Group) remove(c *component) Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.components = slices.DeleteFunc(g.components, func(other *component) bool { return other == c })
	g.notifyLocked()
	return c.status
}

func (g *Group) find(name string) (*component, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.components {
		if c.spec.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no component %q in the process group", name)
}

// backOff returns the delay before the next start of a component that ended this many times
// in a row: 0, 200 ms, then doubled each time up to 30 s.
func backOff(crashes int) time.Duration {
	const first, most = 200 * time.Millisecond, 30 * time.Second
	switch {
	case crashes <= 0:
		return 0
	case crashes > 8: // first<<8 exceeds most
		return most
	}
	return min(first<<(crashes-1), most)
}
