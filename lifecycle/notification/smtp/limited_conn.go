// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"sluice.dev/api/policytime"
)

// Bounds of a server's replies between two commands, and of one line. A reply has a few hundred
// bytes, the longest EHLO some thousand; RFC 5321 section 4.5.3.1.5 allows 512 in a line.
const (
	maxReplyBytes     = 64 << 10
	maxReplyLineBytes = 2000
)

// cancelGracePeriod is the time for which a canceled Send waits for the reply to a completely sent
// message. Giving up earlier causes duplicates.
const cancelGracePeriod = 5 * time.Second

var errReplyTooLong = errors.New("the server's reply does not end")

// limitedConn bounds what the SMTP client does not: the total time, writes between commands, and
// the size of replies. It passes complete lines only, since package textproto accepts a partial
// line as a reply when the connection ends. After the first error every call fails at once, so no
// step waits on a dead connection again.
type limitedConn struct {
	net.Conn
	raw net.Conn // the connection below TLS, or the same

	unread      []byte // received and not yet read
	replyBudget int

	mu                sync.Mutex
	firstErr          error
	wroteAny          bool
	writeFailed       bool
	requestedDeadline time.Time
	maxDeadline       time.Time
	messageComplete   bool // the complete message is written or being written
}

// newLimitedConn wraps conn. Reads return replay first: the greeting received before TLS.
func newLimitedConn(conn, raw net.Conn, replay []byte) *limitedConn {
	return &limitedConn{Conn: conn, raw: raw, unread: replay, replyBudget: maxReplyBytes}
}

// Close implements [net.Conn]. It skips TLS's close_notify, which could block.
func (c *limitedConn) Close() error { return c.raw.Close() }

// Read implements [net.Conn].
func (c *limitedConn) Read(b []byte) (int, error) {
	for {
		if end := bytes.LastIndexByte(c.unread, '\n') + 1; end > 0 {
			n := copy(b, c.unread[:end])
			c.unread = c.unread[n:]
			return n, nil
		}
		if err := c.failure(); err != nil {
			return 0, err
		}
		if c.replyBudget <= 0 || len(c.unread) > maxReplyLineBytes {
			return 0, c.recordFailure(errReplyTooLong, false)
		}
		var chunk [1024]byte
		n, err := c.Conn.Read(chunk[:])
		c.replyBudget -= n
		c.unread = append(c.unread, chunk[:n]...)
		_ = c.recordFailure(err, false) // reported after the lines received with it
	}
}

// Write implements [net.Conn].
func (c *limitedConn) Write(b []byte) (int, error) {
	if err := c.failure(); err != nil {
		return 0, c.recordFailure(err, true)
	}
	c.markWritten()
	c.replyBudget = maxReplyBytes
	n, err := c.Conn.Write(b)
	return n, c.recordFailure(err, true)
}

// SetDeadline implements [net.Conn]. The limit bounds the deadline.
func (c *limitedConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requestedDeadline = t
	return c.applyDeadline()
}

// setLimit sets the limit of all following calls.
func (c *limitedConn) setLimit(limit time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maxDeadline, c.requestedDeadline, c.messageComplete = limit, time.Time{}, false
	_ = c.applyDeadline() // a connection without deadlines fails at its first use
}

// markMessageComplete records that the complete message is being sent.
func (c *limitedConn) markMessageComplete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messageComplete = true
}

// cancel ends pending calls: at once, or after cancelGracePeriod if the complete message is sent.
func (c *limitedConn) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := policytime.MachineNow()
	if c.messageComplete {
		end = end.Add(cancelGracePeriod)
	}
	if c.maxDeadline.IsZero() || end.Before(c.maxDeadline) {
		c.maxDeadline = end
	}
	_ = c.applyDeadline() // as above
}

func (c *limitedConn) applyDeadline() error {
	end := c.requestedDeadline
	if end.IsZero() || !c.maxDeadline.IsZero() && c.maxDeadline.Before(end) {
		end = c.maxDeadline
	}
	return c.Conn.SetDeadline(end)
}

func (c *limitedConn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.firstErr
}

func (c *limitedConn) recordFailure(err error, writing bool) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeFailed = c.writeFailed || writing
	if c.firstErr == nil {
		c.firstErr = err
	}
	return err
}

func (c *limitedConn) markWritten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wroteAny = true
}

// hasWritten reports whether anything was written.
func (c *limitedConn) hasWritten() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wroteAny
}

// hasFailedWrite reports whether a write failed, so the server lacks part of the data.
func (c *limitedConn) hasFailedWrite() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeFailed
}
