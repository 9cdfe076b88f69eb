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

// How many bytes a server may say between two commands, and in one line of that. A
// reply has a few hundred, the longest EHLO some thousand; RFC 5321 section
// 4.5.3.1.5 allows 512 in a line.
const (
	maxReplyBytes     = 64 << 10
	maxReplyLineBytes = 2000
)

// cancelGracePeriod is for how long a sending that is called off waits for the reply to a
// message that has already gone out whole: cutting it short makes a duplicate.
const cancelGracePeriod = 5 * time.Second

var errReplyTooLong = errors.New("the server's reply does not end")

// limitedConn bounds what the SMTP client does not: all time together, writes between
// commands, and how much a server says. It passes whole lines only: half a line is
// no reply, though package textproto takes it for one when the connection ends. Once
// something failed everything after it fails at once, so that no step waits a second
// time on a dead connection.
type limitedConn struct {
	net.Conn
	raw net.Conn // the same, or below TLS

	unread      []byte // and not yet read
	replyBudget int

	mu                sync.Mutex
	firstErr          error
	wroteAny          bool // something was said
	writeFailed       bool // a write failed: the server has not got all that was said
	requestedDeadline time.Time
	maxDeadline       time.Time
	messageComplete   bool // the whole message is on its way
}

// newLimitedConn guards conn; replay is read first: the greeting, which came before TLS.
func newLimitedConn(conn, raw net.Conn, replay []byte) *limitedConn {
	return &limitedConn{Conn: conn, raw: raw, unread: replay, replyBudget: maxReplyBytes}
}

// Close implements [net.Conn]. It takes no leave of TLS, which would wait for a
// server that does not listen.
func (g *limitedConn) Close() error { return g.raw.Close() }

// Read implements [net.Conn].
func (g *limitedConn) Read(b []byte) (int, error) {
	for {
		if end := bytes.LastIndexByte(g.unread, '\n') + 1; end > 0 {
			n := copy(b, g.unread[:end])
			g.unread = g.unread[n:]
			return n, nil
		}
		if err := g.failure(); err != nil {
			return 0, err
		}
		if g.replyBudget <= 0 || len(g.unread) > maxReplyLineBytes {
			return 0, g.recordFailure(errReplyTooLong, false)
		}
		var chunk [1024]byte
		n, err := g.Conn.Read(chunk[:])
		g.replyBudget -= n
		g.unread = append(g.unread, chunk[:n]...)
		_ = g.recordFailure(err, false) // after the lines that came with it
	}
}

// Write implements [net.Conn].
func (g *limitedConn) Write(b []byte) (int, error) {
	if err := g.failure(); err != nil {
		return 0, g.recordFailure(err, true)
	}
	g.markWritten()
	g.replyBudget = maxReplyBytes
	n, err := g.Conn.Write(b)
	return n, g.recordFailure(err, true)
}

// SetDeadline implements [net.Conn]. It never goes beyond the limit.
func (g *limitedConn) SetDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requestedDeadline = t
	return g.applyDeadline()
}

// setLimit sets the limit of what follows.
func (g *limitedConn) setLimit(limit time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.maxDeadline, g.requestedDeadline, g.messageComplete = limit, time.Time{}, false
	_ = g.applyDeadline() // a connection that takes no deadline fails at its first use
}

// markMessageComplete says that the whole message goes out now.
func (g *limitedConn) markMessageComplete() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.messageComplete = true
}

// cancel ends what is under way: at once, or soon where the whole message is on
// its way.
func (g *limitedConn) cancel() {
	g.mu.Lock()
	defer g.mu.Unlock()
	end := policytime.MachineNow()
	if g.messageComplete {
		end = end.Add(cancelGracePeriod)
	}
	if g.maxDeadline.IsZero() || end.Before(g.maxDeadline) {
		g.maxDeadline = end
	}
	_ = g.applyDeadline() // as above
}

func (g *limitedConn) applyDeadline() error {
	end := g.requestedDeadline
	if end.IsZero() || !g.maxDeadline.IsZero() && g.maxDeadline.Before(end) {
		end = g.maxDeadline
	}
	return g.Conn.SetDeadline(end)
}

func (g *limitedConn) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.firstErr
}

func (g *limitedConn) recordFailure(err error, writing bool) error {
	if err == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writeFailed = g.writeFailed || writing
	if g.firstErr == nil {
		g.firstErr = err
	}
	return err
}

func (g *limitedConn) markWritten() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wroteAny = true
}

// hasWritten is whether anything was said on this side.
func (g *limitedConn) hasWritten() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wroteAny
}

// hasFailedWrite is whether something that was said has not gone out.
func (g *limitedConn) hasFailedWrite() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writeFailed
}
