// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// line is one connection to a server, on which one call is made at a time.
type line struct {
	*net.UnixConn
	lines  *bufio.Reader
	broken bool // nobody knows what comes next on it
}

// connect opens a connection and calls Init on it. The driver's calls have no
// context; the limit ends it.
func (c *Client) connect() (*line, error) {
	dialer := net.Dialer{Timeout: c.limit()}
	connection, err := dialer.Dial("unix", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", nvml.ErrDriverNotLoaded, err)
	}
	l := &line{UnixConn: connection.(*net.UnixConn), lines: bufio.NewReader(connection)}
	if err := l.call(&request{Method: "Init"}, nil, c.limit()); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// call makes one call and waits for what became of it. An answer that does not
// come leaves unknown whether the call had an effect.
func (l *line) call(r *request, answer any, limit time.Duration) error {
	l.broken = true
	var it reply
	err := l.SetDeadline(time.Now().Add(limit))
	if err == nil {
		err = writeLine(l, r)
	}
	if err == nil {
		err = readLine(l.lines, &it)
	}
	if err == nil && it.Error == nil && answer != nil {
		err = json.Unmarshal(it.Answer, answer)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: no answer within %s: %w", r.Method, limit, nvml.ErrTimeout)
	case err != nil:
		return fmt.Errorf("%s: the server went away, or does not speak our language: %w: %w", r.Method, nvml.ErrUnknown, err)
	}
	l.broken = false
	return it.Error.err()
}

// alive tells whether the server has not closed the connection since it was last used:
// a call on it would be one of unknown effect.
func (l *line) alive() bool {
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
	// Nothing to read is what a quiet connection has; the end is read, and so is what nobody asked for.
	return err == nil && errors.Is(peeked, syscall.EAGAIN)
}
