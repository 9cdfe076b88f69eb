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
	// probeTimeout limits one call of Spec.Ready, and killTimeout the end after SIGKILL, on a machine on which much else
	// runs.
	probeTimeout, killTimeout = 10 * time.Second, 30 * time.Second
	// stableAfter is the run time after which the count of crashes starts again.
	stableAfter = time.Minute
)

// component is a Spec and its state.
type component struct {
	spec    Spec
	logPath string
	status  Status // guarded by the group's mutex
	crashes int    // in a row

	restart chan chan error // one result each
	// stopCtx ends when a stop is requested, killCtx when the stop must not wait any
	// longer.
	stopCtx, killCtx         context.Context
	requestStop, requestKill context.CancelFunc

	done    chan struct{} // closed when the component has ended
	stopErr error         // set before done is closed
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

// stop requests a stop and waits until the component has ended.
func (c *component) stop(ctx context.Context) error {
	c.requestStop()
	cancelKill := context.AfterFunc(ctx, c.requestKill)
	defer cancelKill()
	<-c.done
	return c.stopErr
}

// launchAndWait launches the component and waits until it is ready. After an error the
// component is not running.
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
	if c.spec.ReadyLater {
		go g.markReady(c, in)
		return in, nil
	}
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

// markReady waits until an instance of Spec.ReadyLater is ready or has ended.
func (g *Group) markReady(c *component, in instance) {
	if c.awaitReady(c.stopCtx, in) != nil {
		return // it has ended, or is being stopped
	}
	g.change(c, func(s *Status) {
		if s.State == Starting && s.PID == in.pid() && s.StartedAt.Equal(in.startTime()) {
			s.State = Running
		}
	})
}

func (c *component) awaitReady(ctx context.Context, in instance) error {
	if c.spec.Ready == nil {
		return nil
	}
	if !c.spec.ReadyLater {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.spec.ReadyTimeout,
			fmt.Errorf("not ready after %s", c.spec.ReadyTimeout))
		defer cancel()
	}
	tick := time.NewTicker(readyPollInterval)
	defer tick.Stop()
	var lastErr error
	for {
		select {
		case <-in.exited():
			return fmt.Errorf("it ended before it was ready: %s", in.exit())
		case <-c.stopCtx.Done():
			return ErrStopped
		case <-ctx.Done():
			if lastErr != nil {
				return fmt.Errorf("%w; last error: %w", context.Cause(ctx), lastErr)
			}
			return context.Cause(ctx)
		case <-tick.C:
		}
		probeCtx, cancelProbe := context.WithTimeout(ctx, probeTimeout)
		err := c.spec.Ready(probeCtx)
		cancelProbe()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // an error after the timeout adds no information
			lastErr = err
		}
	}
}

// supervise keeps a component running, after it was ready once, until a stop is requested.
func (g *Group) supervise(c *component, in instance) {
	defer close(c.done)
	for in != nil {
		var result chan error
		select {
		case <-c.stopCtx.Done():
			c.terminate(in)
			g.markEnded(c, Stopped, in.exit(), in.exitCode())
			return
		case result = <-c.restart:
			g.change(c, func(s *Status) { s.State = Stopping })
			c.terminate(in)
			c.crashes = 0
		case <-in.exited():
			if time.Since(in.startTime()) > stableAfter {
				c.crashes = 0
			}
			c.crashes++
			if c.spec.RestartAfter != nil && !c.spec.RestartAfter(in.exitCode()) {
				g.markEnded(c, Exited, in.exit(), in.exitCode())
				<-c.stopCtx.Done()
				return
			}
		}
		g.change(c, func(s *Status) { s.LastExitCode = in.exitCode() })
		in = g.restartUntilReady(c, in.exit(), result)
	}
}

// restartUntilReady launches the component until it is ready. It returns nil if a stop is
// requested. If result is set, it receives the outcome of the first attempt.
func (g *Group) restartUntilReady(c *component, exit string, result chan<- error) instance {
	for {
		if !g.waitBackOff(c, exit) {
			if result != nil {
				result <- fmt.Errorf("restart %s: %w", c.spec.Name, ErrStopped)
			}
			g.change(c, func(s *Status) { s.State, s.PID, s.NextStart = Stopped, 0, time.Time{} })
			return nil
		}
		in, err := g.launchAndWait(c.stopCtx, c)
		if result != nil {
			result <- errorOrNil(err)
			result = nil
		}
		if err == nil {
			return in
		}
		c.crashes++
		exit = err.Err.Error()
	}
}

// waitBackOff records how the component ended and waits for its next start. It returns
// false if a stop is requested meanwhile.
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

// markEnded records that the component has ended.
func (g *Group) markEnded(c *component, state State, exit string, code int) {
	g.change(c, func(s *Status) {
		s.State, s.PID, s.NextStart = state, 0, time.Time{}
		s.LastExit, s.LastExitAt, s.LastExitCode = exit, time.Now(), code
	})
}

// terminate requests the end of the instance, and kills it after the timeout.
func (c *component) terminate(in instance) {
	in.terminate()
	timeout := time.NewTimer(c.spec.StopTimeout)
	defer timeout.Stop()
	select {
	case <-in.exited():
		return
	case <-timeout.C:
	case <-c.killCtx.Done():
	}
	c.kill(in)
}

// kill ends the instance and waits for it. A program ends at once; a function that ignores
// its context continues and must not block the group.
func (c *component) kill(in instance) {
	in.kill()
	grace := time.NewTimer(killTimeout)
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
