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

// Envelope holds the addresses of the SMTP transaction, independent of the message's header.
type Envelope struct {
	// From receives bounces.
	From string
	// To is the only recipient.
	To string
}

// Sender submits messages to one mail server. It is safe for concurrent use: each
// [Sender.Send] has its own connection. [New] creates one.
type Sender struct {
	config    Config
	server    string
	helloName string
	tls       *tls.Config
	dkim      *dkim.SignOptions

	closing sync.WaitGroup // connections that send QUIT
	mu      sync.Mutex
	idle    []*idleConnection
	closed  bool
}

// New validates a configuration and returns a Sender for it, without dialing. Its error
// names every invalid field as in the configuration file.
func New(config Config) (*Sender, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	tlsConfig, err := config.tlsConfig()
	if err != nil {
		return nil, err
	}
	s := &Sender{
		config:    config,
		server:    net.JoinHostPort(config.Host, strconv.Itoa(config.Port)),
		helloName: config.helloName(),
		tls:       tlsConfig,
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

// Send submits one message and returns nil once the server has accepted it. mail is the
// complete message with lines of at most 998 bytes that end with CRLF; it is not changed.
//
// The error is always a *[Failure]. Send returns after at most [Timeouts].Total. When ctx
// ends it returns at once, or within five seconds if the complete message is sent and only
// its reply is missing.
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

// isStaleConnection reports whether the server had closed a reused connection: nothing of the
// message was sent, so a new connection may be tried.
func isStaleConnection(err error) bool {
	f, is := errors.AsType[*Failure](err)
	return is && f.Stage == StageMail && (f.Code == 421 || f.Code == 0 && f.Kind == TemporaryFailure)
}

// prepare checks envelope and message before dialing, and signs the message.
func (s *Sender) prepare(envelope Envelope, mail []byte) (submission, Stage, error) {
	from, err := parseAddress(envelope.From)
	if err != nil {
		text := fmt.Sprintf("the sender %q is not an address: %v", envelope.From, err)
		return submission{}, StageAddress, &localFailure{ConfigurationFailure, text}
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

// idleConnection is a connection kept for the next message. The goroutine that removes it from
// Sender.idle owns it.
type idleConnection struct {
	*connection
	stopTimer context.CancelFunc // stops the idle timer
}

// acquireIdle returns an idle connection, or nil. The latest comes first, since the server is
// least likely to have closed it.
func (s *Sender) acquireIdle() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		return nil
	}
	idle := s.idle[last]
	s.idle = s.idle[:last]
	idle.stopTimer()
	return idle.connection
}

// release keeps a connection for the next message, or closes it.
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
	idleTimer, stopTimer := context.WithTimeout(context.Background(), s.config.Reuse.Idle)
	idle := &idleConnection{connection: c, stopTimer: stopTimer}
	context.AfterFunc(idleTimer, func() { s.expireIdle(idle) })
	s.idle = append(s.idle, idle)
}

// expireIdle closes a connection after its idle time, unless it was acquired.
func (s *Sender) expireIdle(idle *idleConnection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.idle, idle)
	if at < 0 {
		return
	}
	s.idle = slices.Delete(s.idle, at, at+1)
	idle.stopTimer()
	s.closing.Go(idle.quit)
}

// Close closes the idle connections and returns after at most two seconds. A running
// [Sender.Send] is not affected, and a later one still works with a new connection.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	for _, idle := range s.idle {
		idle.stopTimer()
		s.closing.Go(idle.quit)
	}
	s.idle = nil
	s.mu.Unlock()
	s.closing.Wait()
}
