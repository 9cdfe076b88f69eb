// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/emersion/go-msgauth/dkim"

	"sluice.dev/api/policytime"
)

// Envelope is what the server is told, whatever the message's header says.
type Envelope struct {
	// From gets the bounces.
	From string
	// To is the one recipient.
	To string
}

// Sender hands messages to one mail server. It is safe for concurrent use: each
// [Sender.Send] has a connection for itself. [New] makes one.
type Sender struct {
	config    Config
	server    string
	helloName string
	tls       *tls.Config
	dkim      *dkim.SignOptions

	closing sync.WaitGroup // connections that say goodbye
	mu      sync.Mutex
	idle    []*idleConnection
	closed  bool
}

// New checks a configuration and makes a sender of it. It dials nothing. Its error
// names every field that is wrong, in the words of the configuration file.
func New(config Config) (*Sender, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	protection, err := config.tlsConfig()
	if err != nil {
		return nil, err
	}
	s := &Sender{
		config:    config,
		server:    net.JoinHostPort(config.Host, strconv.Itoa(config.Port)),
		helloName: config.helloName(),
		tls:       protection,
	}
	if config.DKIM != nil {
		if s.dkim, err = config.DKIM.signOptions(); err != nil {
			return nil, err
		}
	}
	if s.config.TLS == "" {
		s.config.TLS = StartTLS
	}
	if s.config.Auth == "" {
		s.config.Auth = NoAuth
	}
	if s.config.Dial == nil {
		s.config.Dial = (&net.Dialer{}).DialContext
	}
	s.config.Timeouts = config.Timeouts.WithDefaults()
	s.config.Reuse = config.Reuse.withDefaults()
	return s, nil
}

// Send hands one message to the server and returns nil once the server has said
// that it has it. mail is the whole message in its form for the wire: lines end
// with CRLF and have at most 998 bytes. It is not changed.
//
// The error is always a *[Failure]. Send returns after at most [Timeouts].Total, and
// when ctx ends: at once, or within five seconds where the whole message is out
// and only its reply is missing.
func (s *Sender) Send(ctx context.Context, envelope Envelope, mail []byte) error {
	limit := policytime.MachineNow().Add(s.config.Timeouts.Total)
	p, stage, err := s.prepare(envelope, mail)
	if err != nil {
		return s.newFailure(ctx, stage, nil, err)
	}
	if cause := context.Cause(ctx); cause != nil {
		return s.newFailure(ctx, StageDial, nil, cause)
	}
	if c := s.acquireIdle(); c != nil {
		err := c.send(ctx, limit, p)
		if err == nil {
			s.release(c)
			return nil
		}
		if !isStaleConnection(err) || ctx.Err() != nil {
			return err
		}
	}
	bounded, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	c, err := s.connect(bounded, limit)
	if err != nil {
		return err
	}
	if err := c.send(ctx, limit, p); err != nil {
		return err
	}
	s.release(c)
	return nil
}

// isStaleConnection is whether a connection that was used before had been closed by the server
// meanwhile: nothing of the message has been said, so another one may be tried.
func isStaleConnection(err error) bool {
	f, is := errors.AsType[*Failure](err)
	return is && f.Stage == StageMail && (f.Code == 421 || f.Code == 0 && f.Kind == TemporaryFailure)
}

// prepare checks all that can be known before the server is dialled, and signs.
func (s *Sender) prepare(envelope Envelope, mail []byte) (submission, Stage, error) {
	from, err := parseAddress(envelope.From)
	if err != nil {
		return submission{}, StageAddress, &localFailure{ConfigurationFailure, fmt.Sprintf("the sender %q is not an address: %v", envelope.From, err)}
	}
	to, err := parseAddress(envelope.To)
	if err != nil {
		return submission{}, StageAddress, &localFailure{RecipientFailure, fmt.Sprintf("%q is not an address: %v", envelope.To, err)}
	}
	checked, err := validateMessage(mail)
	if err == nil && s.dkim != nil {
		if mail, err = signMessage(mail, s.dkim); err == nil {
			checked, err = validateMessage(mail)
		}
	}
	if err != nil {
		return submission{}, StageMessage, &localFailure{RecipientFailure, fmt.Sprintf("the message cannot be sent: %v", err)}
	}
	return submission{from: from, to: to, message: checked}, "", nil
}

// idleConnection is a connection that waits for the next message. Whoever takes it off
// [Sender.waiting] owns it.
type idleConnection struct {
	*connection
	stopTimer context.CancelFunc // ends the wait
}

// acquireIdle is a connection that waits, or nil. The latest comes first: it is the least
// likely to have been closed by the server.
func (s *Sender) acquireIdle() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		return nil
	}
	waiting := s.idle[last]
	s.idle = s.idle[:last]
	waiting.stopTimer()
	return waiting.connection
}

// release lets a connection wait for the next message, or ends it.
func (s *Sender) release(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.canceled, c.conn.failure() != nil:
		c.closeNow()
		return
	case s.closed:
		go c.quit()
		return
	case c.sentMessages >= s.config.Reuse.Messages || len(s.idle) >= s.config.Reuse.Connections:
		s.closing.Go(c.quit)
		return
	}
	wait, stop := context.WithTimeout(context.Background(), s.config.Reuse.Idle)
	waiting := &idleConnection{connection: c, stopTimer: stop}
	context.AfterFunc(wait, func() { s.expireIdle(waiting) })
	s.idle = append(s.idle, waiting)
}

// expireIdle ends a connection that has waited long enough, unless it has been taken.
func (s *Sender) expireIdle(waiting *idleConnection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.idle, waiting)
	if at < 0 {
		return
	}
	s.idle = slices.Delete(s.idle, at, at+1)
	waiting.stopTimer()
	s.closing.Go(waiting.quit)
}

// Close ends the connections that wait, and returns when they are closed, after two
// seconds at most. A [Sender.Send] that is under way is not disturbed, and a later
// one still works, with a connection of its own.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	for _, waiting := range s.idle {
		waiting.stopTimer()
		s.closing.Go(waiting.quit)
	}
	s.idle = nil
	s.mu.Unlock()
	s.closing.Wait()
}
