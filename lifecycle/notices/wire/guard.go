// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"sluice.dev/api/clock"
)

// How many bytes a server may say between two commands, and in one line of that. A
// reply has a few hundred, the longest EHLO some thousand; RFC 5321 section
// 4.5.3.1.5 allows 512 in a line.
const (
	maxReply     = 64 << 10
	maxReplyLine = 2000
)

// grace is for how long a sending that is called off waits for the reply to a
// message that has already gone out whole: cutting it short makes a duplicate.
const grace = 5 * time.Second

var errEndless = errors.New("the server's reply does not end")

// guard bounds what the SMTP client does not: all time together, writes between
// commands, and how much a server says. It passes whole lines only: half a line is
// no reply, though package textproto takes it for one when the connection ends. Once
// something failed everything after it fails at once, so that no step waits a second
// time on a dead connection.
type guard struct {
	net.Conn
	raw net.Conn // the same, or below TLS

	said   []byte // and not yet read
	budget int

	mu       sync.Mutex
	broken   error
	spoken   bool // something was said
	mute     bool // a write failed: the server has not got all that was said
	asked    time.Time
	limit    time.Time
	finished bool // the whole message is on its way
}

// newGuard guards conn; replay is read first: the greeting, which came before TLS.
func newGuard(conn, raw net.Conn, replay []byte) *guard {
	return &guard{Conn: conn, raw: raw, said: replay, budget: maxReply}
}

// Close implements [net.Conn]. It takes no leave of TLS, which would wait for a
// server that does not listen.
func (g *guard) Close() error { return g.raw.Close() }

// Read implements [net.Conn].
func (g *guard) Read(b []byte) (int, error) {
	for {
		if end := bytes.LastIndexByte(g.said, '\n') + 1; end > 0 {
			n := copy(b, g.said[:end])
			g.said = g.said[n:]
			return n, nil
		}
		if err := g.failed(); err != nil {
			return 0, err
		}
		if g.budget <= 0 || len(g.said) > maxReplyLine {
			return 0, g.fail(errEndless, false)
		}
		var chunk [1024]byte
		n, err := g.Conn.Read(chunk[:])
		g.budget -= n
		g.said = append(g.said, chunk[:n]...)
		_ = g.fail(err, false) // after the lines that came with it
	}
}

// Write implements [net.Conn].
func (g *guard) Write(b []byte) (int, error) {
	if err := g.failed(); err != nil {
		return 0, g.fail(err, true)
	}
	g.say()
	g.budget = maxReply
	n, err := g.Conn.Write(b)
	return n, g.fail(err, true)
}

// SetDeadline implements [net.Conn]. It never goes beyond the limit.
func (g *guard) SetDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = t
	return g.apply()
}

// begin sets the limit of what follows.
func (g *guard) begin(limit time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.asked, g.finished = limit, time.Time{}, false
	_ = g.apply() // a connection that takes no deadline fails at its first use
}

// finish says that the whole message goes out now.
func (g *guard) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finished = true
}

// callOff ends what is under way: at once, or soon where the whole message is on
// its way.
func (g *guard) callOff() {
	g.mu.Lock()
	defer g.mu.Unlock()
	end := clock.MachineNow()
	if g.finished {
		end = end.Add(grace)
	}
	if g.limit.IsZero() || end.Before(g.limit) {
		g.limit = end
	}
	_ = g.apply() // as above
}

func (g *guard) apply() error {
	end := g.asked
	if end.IsZero() || !g.limit.IsZero() && g.limit.Before(end) {
		end = g.limit
	}
	return g.Conn.SetDeadline(end)
}

func (g *guard) failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken
}

func (g *guard) fail(err error, writing bool) error {
	if err == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mute = g.mute || writing
	if g.broken == nil {
		g.broken = err
	}
	return err
}

func (g *guard) say() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spoken = true
}

// hasSpoken is whether anything was said on this side.
func (g *guard) hasSpoken() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.spoken
}

// unheard is whether something that was said has not gone out.
func (g *guard) unheard() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mute
}
