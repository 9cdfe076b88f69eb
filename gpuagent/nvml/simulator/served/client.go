// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// Client is the driver behind a socket. Calls that are made at once have a
// connection each, so that one that hangs keeps no other waiting; connections that end are
// replaced by the next call. It is safe for concurrent use.
type Client struct {
	// Socket is the path of the server's socket.
	Socket string
	// Limit is how long a call may take before it is given up with ErrTimeout, its
	// effect unknown; 0 means 30 s.
	Limit time.Duration

	mu    sync.Mutex
	inits int
	idle  []*line
}

var _ nvml.Library = (*Client)(nil)

// Dial is the driver behind a socket. Nothing is connected before Init, which fails
// with ErrDriverNotLoaded where nobody serves.
func Dial(socket string) *Client { return &Client{Socket: socket} }

// Init implements [nvml.Library].
func (c *Client) Init() error {
	l, err := c.connect()
	if err != nil {
		return fmt.Errorf("Init: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inits++
	c.idle = append(c.idle, l)
	return nil
}

// Shutdown implements [nvml.Library].
func (c *Client) Shutdown() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inits == 0 {
		return nvml.ErrUninitialized
	}
	if c.inits--; c.inits == 0 {
		for _, l := range c.idle {
			l.Close()
		}
		c.idle = nil
	}
	return nil
}

// ask makes a call. The server's driver may have been loaded anew since the
// connection was made: it says so before the call has any effect, and the call is made again.
func ask[T any](c *Client, r request) (answer T, err error) {
	for range 2 {
		l, err := c.take()
		if err != nil {
			return answer, fmt.Errorf("%s: %w", r.Method, err)
		}
		err = l.call(&r, &answer, c.limit())
		if l.broken || errors.Is(err, nvml.ErrUninitialized) {
			l.Close()
		} else {
			c.put(l)
		}
		if !errors.Is(err, nvml.ErrUninitialized) {
			return answer, err
		}
	}
	return answer, fmt.Errorf("%s: %w", r.Method, nvml.ErrUninitialized)
}

// take is a connection on which Init was called: an idle one, or a new one.
func (c *Client) take() (*line, error) {
	for {
		c.mu.Lock()
		if c.inits == 0 {
			c.mu.Unlock()
			return nil, nvml.ErrUninitialized
		}
		last := len(c.idle) - 1
		if last < 0 {
			c.mu.Unlock()
			return c.connect()
		}
		l := c.idle[last]
		c.idle = c.idle[:last]
		c.mu.Unlock()
		if l.alive() {
			return l, nil
		}
		l.Close()
	}
}

func (c *Client) put(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inits == 0 {
		l.Close()
		return
	}
	c.idle = append(c.idle, l)
}

func (c *Client) limit() time.Duration {
	if c.Limit > 0 {
		return c.Limit
	}
	return 30 * time.Second
}
