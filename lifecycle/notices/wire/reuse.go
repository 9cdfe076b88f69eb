// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"slices"
)

// idle is a connection that waits for the next message. Whoever takes it off
// [Sender.waiting] owns it.
type idle struct {
	*connection
	stop context.CancelFunc // ends the wait
}

// take is a connection that waits, or nil. The latest comes first: it is the least
// likely to have been closed by the server.
func (s *Sender) take() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.waiting) - 1
	if last < 0 {
		return nil
	}
	waiting := s.waiting[last]
	s.waiting = s.waiting[:last]
	waiting.stop()
	return waiting.connection
}

// keep lets a connection wait for the next message, or ends it.
func (s *Sender) keep(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.calledOff, c.guard.failed() != nil:
		c.drop()
		return
	case s.closed:
		go c.quit()
		return
	case c.carried >= s.config.Reuse.Messages || len(s.waiting) >= s.config.Reuse.Connections:
		s.leaving.Go(c.quit)
		return
	}
	wait, stop := context.WithTimeout(context.Background(), s.config.Reuse.Idle)
	waiting := &idle{connection: c, stop: stop}
	context.AfterFunc(wait, func() { s.forget(waiting) })
	s.waiting = append(s.waiting, waiting)
}

// forget ends a connection that has waited long enough, unless it has been taken.
func (s *Sender) forget(waiting *idle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.waiting, waiting)
	if at < 0 {
		return
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	waiting.stop()
	s.leaving.Go(waiting.quit)
}

// Close ends the connections that wait, and returns when they are closed, after two
// seconds at most. A [Sender.Send] that is under way is not disturbed, and a later
// one still works, with a connection of its own.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	for _, waiting := range s.waiting {
		waiting.stop()
		s.leaving.Go(waiting.quit)
	}
	s.waiting = nil
	s.mu.Unlock()
	s.leaving.Wait()
}
