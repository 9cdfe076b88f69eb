// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// Client is the driver behind a socket. Concurrent calls have a connection each, so that a hung
// call blocks no other; the next call replaces a closed connection. It is safe for concurrent use.
type Client struct {
	// Socket is the path of the server's socket.
	Socket string
	// CallTimeout limits a call. After it the call returns ErrTimeout, and its effect is unknown.
	// Default: 30 s.
	CallTimeout time.Duration

	mu    sync.Mutex
	inits int
	idle  []*serverConnection
}

var _ nvml.Library = (*Client)(nil)

// Dial returns the driver behind a socket. It connects on Init, which returns ErrDriverNotLoaded
// without a server.
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

// callServer makes a call. If the server's driver was reloaded since the connection was made, the
// server refuses the call before any effect, and callServer repeats it.
func callServer[T any](c *Client, r request) (answer T, err error) {
	for range 2 {
		l, err := c.acquire()
		if err != nil {
			return answer, fmt.Errorf("%s: %w", r.Method, err)
		}
		err = l.call(&r, &answer, c.callTimeout())
		if l.broken || errors.Is(err, nvml.ErrUninitialized) {
			l.Close()
		} else {
			c.release(l)
		}
		if !errors.Is(err, nvml.ErrUninitialized) {
			return answer, err
		}
	}
	return answer, fmt.Errorf("%s: %w", r.Method, nvml.ErrUninitialized)
}

// acquire returns an idle or a new connection on which Init was called.
func (c *Client) acquire() (*serverConnection, error) {
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
		if l.isAlive() {
			return l, nil
		}
		l.Close()
	}
}

func (c *Client) release(l *serverConnection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inits == 0 {
		l.Close()
		return
	}
	c.idle = append(c.idle, l)
}

func (c *Client) callTimeout() time.Duration {
	if c.CallTimeout > 0 {
		return c.CallTimeout
	}
	return 30 * time.Second
}

// serverConnection is one connection to a server, with one call at a time.
type serverConnection struct {
	*net.UnixConn
	reader *bufio.Reader
	broken bool // The next line may belong to an earlier call.
}

// connect opens a connection and calls Init on it. The driver's calls have no context; the timeout
// ends them.
func (c *Client) connect() (*serverConnection, error) {
	dialer := net.Dialer{Timeout: c.callTimeout()}
	connection, err := dialer.Dial("unix", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", nvml.ErrDriverNotLoaded, err)
	}
	l := &serverConnection{UnixConn: connection.(*net.UnixConn), reader: bufio.NewReader(connection)}
	if err := l.call(&request{Method: "Init"}, nil, c.callTimeout()); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// call makes one call and waits for its result. Without a result the call's effect is unknown.
func (l *serverConnection) call(r *request, answer any, limit time.Duration) error {
	l.broken = true
	var it response
	err := l.SetDeadline(time.Now().Add(limit))
	if err == nil {
		err = writeLine(l, r)
	}
	if err == nil {
		err = readLine(l.reader, &it)
	}
	if err == nil && it.Error == nil && answer != nil {
		err = json.Unmarshal(it.Result, answer)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: no answer within %s: %w", r.Method, limit, nvml.ErrTimeout)
	case err != nil:
		return fmt.Errorf("%s: the server closed the connection, or sent no valid message: %w: %w", r.Method, nvml.ErrUnknown, err)
	}
	l.broken = false
	return it.Error.toError()
}

// isAlive reports whether the server has not closed the connection. A call on a closed connection
// would have an unknown effect.
func (l *serverConnection) isAlive() bool {
	raw, err := l.SyscallConn()
	if err != nil || l.SetDeadline(time.Time{}) != nil {
		return false
	}
	var peeked error
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, peeked = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	// An idle connection has nothing to read. A closed one returns the end, a broken one unexpected
	// data.
	return err == nil && errors.Is(peeked, syscall.EAGAIN)
}
