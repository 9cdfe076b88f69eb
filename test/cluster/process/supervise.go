// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"time"
)

const (
	readyPollInterval = 50 * time.Millisecond
	readyTimeout      = 2 * time.Second
	// stableAfter is how long a component has to run until its next crash
	// counts as a first one.
	stableAfter = time.Minute
)

// component is one Spec and what has become of it.
type component struct {
	spec    Spec
	logPath string
	status  Status // guarded by the group's mutex
	crashes int    // in a row

	restart chan chan error // one answer each
	// stopCtx ends with the first word to stop, hurry when the patience is over.
	stopCtx, killCtx         context.Context
	requestStop, requestKill context.CancelFunc

	done    chan struct{} // closed when nothing of it runs any more
	stopErr error         // what does not end; set before done is closed
}

func newComponent(spec Spec, logPath string) *component {
	c := &component{
		spec:    spec,
		logPath: logPath,
		status:  Status{Name: spec.Name, State: Starting, LogPath: logPath},
		restart: make(chan chan error),
		done:    make(chan struct{}),
	}
	c.stopCtx, c.requestStop = context.WithCancel(context.Background())
	c.killCtx, c.requestKill = context.WithCancel(context.Background())
	return c
}

// stop tells the component to stop and waits until it has.
func (c *component) stop(ctx context.Context) error {
	c.requestStop()
	stopHurry := context.AfterFunc(ctx, c.requestKill)
	defer stopHurry()
	<-c.done
	return c.stopErr
}

// launchAndWait launches the component once and waits until it is ready. On an error
// nothing of it runs any more.
func (g *Group) launchAndWait(ctx context.Context, c *component) (instance, *StartError) {
	logFrom := logSize(c.logPath)
	in, err := g.launch(c.spec, c.logPath)
	if err != nil {
		return nil, c.startError(err, logFrom)
	}
	g.change(c, func(s *Status) {
		if !s.StartedAt.IsZero() {
			s.Restarts++
		}
		s.State, s.PID, s.StartedAt, s.NextStart = Starting, in.pid(), in.startTime(), time.Time{}
	})
	if err := c.awaitReady(ctx, in); err != nil {
		if !isClosed(in.exited()) {
			c.kill(in)
		}
		g.change(c, func(s *Status) { s.PID = 0 })
		return nil, c.startError(err, logFrom)
	}
	g.change(c, func(s *Status) { s.State = Running })
	return in, nil
}

func (c *component) awaitReady(ctx context.Context, in instance) error {
	if c.spec.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.spec.ReadyTimeout,
		fmt.Errorf("not ready after %s", c.spec.ReadyTimeout))
	defer cancel()
	tick := time.NewTicker(readyPollInterval)
	defer tick.Stop()
	var answer error
	for {
		select {
		case <-in.exited():
			return fmt.Errorf("it ended before it was ready: %s", in.exit())
		case <-c.stopCtx.Done():
			return ErrStopped
		case <-ctx.Done():
			if answer != nil {
				return fmt.Errorf("%w; last answer: %w", context.Cause(ctx), answer)
			}
			return context.Cause(ctx)
		case <-tick.C:
		}
		ask, cancelAsk := context.WithTimeout(ctx, readyTimeout)
		err := c.spec.Ready(ask)
		cancelAsk()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // else the answer is only that time is over
			answer = err
		}
	}
}

// supervise keeps a component that was ready once running until it is halted.
func (g *Group) supervise(c *component, in instance) {
	defer close(c.done)
	for in != nil {
		var answer chan error
		select {
		case <-c.stopCtx.Done():
			c.terminate(in)
			g.markEnded(c, in.exit())
			return
		case answer = <-c.restart:
			g.change(c, func(s *Status) { s.State = Stopping })
			c.terminate(in)
			c.crashes = 0
		case <-in.exited():
			if time.Since(in.startTime()) > stableAfter {
				c.crashes = 0
			}
			c.crashes++
		}
		in = g.restartUntilReady(c, in.exit(), answer)
	}
}

// restartUntilReady launches the component until it is ready or halted; then it returns nil.
// The first attempt's outcome goes to answer, if there is one.
func (g *Group) restartUntilReady(c *component, exit string, answer chan<- error) instance {
	for {
		if !g.waitBackOff(c, exit) {
			if answer != nil {
				answer <- fmt.Errorf("restart %s: %w", c.spec.Name, ErrStopped)
			}
			g.markEnded(c, exit)
			return nil
		}
		in, err := g.launchAndWait(c.stopCtx, c)
		if answer != nil {
			answer <- errorOrNil(err)
			answer = nil
		}
		if err == nil {
			return in
		}
		c.crashes++
		exit = err.Err.Error()
	}
}

// waitBackOff notes how the component ended and waits for the time of its next start;
// false means that it was halted meanwhile.
func (g *Group) waitBackOff(c *component, exit string) bool {
	now, wait := time.Now(), backOff(c.crashes)
	g.change(c, func(s *Status) {
		s.State, s.PID, s.LastExit, s.LastExitAt, s.NextStart = BackOff, 0, exit, now, now.Add(wait)
	})
	appendToLog(c.logPath, fmt.Sprintf("%s ended: %s; started again in %s", c.spec.Name, exit, wait))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return c.stopCtx.Err() == nil
	case <-c.stopCtx.Done():
		return false
	}
}

// markEnded notes that nothing of the component runs any more.
func (g *Group) markEnded(c *component, exit string) {
	g.change(c, func(s *Status) {
		s.State, s.PID, s.NextStart = Stopped, 0, time.Time{}
		s.LastExit, s.LastExitAt = exit, time.Now()
	})
}

// terminate asks the instance to end, and kills it when it takes too long.
func (c *component) terminate(in instance) {
	in.terminate()
	patience := time.NewTimer(c.spec.StopTimeout)
	defer patience.Stop()
	select {
	case <-in.exited():
		return
	case <-patience.C:
	case <-c.killCtx.Done():
	}
	c.kill(in)
}

// kill ends the instance and waits for it. A program is gone at once; a function
// that ignores its context cannot be ended, and must not block us.
func (c *component) kill(in instance) {
	in.kill()
	grace := time.NewTimer(readyTimeout)
	defer grace.Stop()
	select {
	case <-in.exited():
	case <-grace.C:
		c.stopErr = fmt.Errorf("%s does not end: %s", c.spec.Name, in.exit())
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
