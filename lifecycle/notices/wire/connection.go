// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/emersion/go-smtp"

	"sluice.dev/api/clock"
)

// connection is one that is ready for MAIL, or on the way there.
type connection struct {
	sender  *Sender
	raw     net.Conn
	guard   *guard
	client  *smtp.Client
	stage   Stage
	secrets []string
	carried int // messages

	calledOff bool // its deadline may be cut at any moment
}

// connect opens a connection and makes it ready for MAIL before the limit. Its
// error is a *Failure, and then nothing is left open.
func (s *Sender) connect(ctx context.Context, limit time.Time) (*connection, error) {
	c := &connection{sender: s, stage: StageCredentials}
	if err := c.open(ctx, limit); err != nil {
		c.drop()
		return nil, s.failure(ctx, c.stage, c.secrets, err)
	}
	return c, nil
}

func (c *connection) open(ctx context.Context, limit time.Time) error {
	s := c.sender
	as, err := s.askCredentials(ctx)
	if err != nil {
		return err
	}
	c.secrets = as.secrets()

	c.stage = StageDial
	if err := c.dial(ctx); err != nil {
		return err
	}
	c.guard = newGuard(c.raw, c.raw, nil)
	c.guard.begin(limit)
	stop := context.AfterFunc(ctx, c.guard.callOff)
	err = c.protect(ctx)
	stop()
	if err != nil {
		return err
	}
	// Above TLS a new guard counts what the server says.
	c.guard.begin(limit)
	defer context.AfterFunc(ctx, c.guard.callOff)()

	c.client = smtp.NewClient(c.guard)
	c.client.CommandTimeout = s.config.Timeouts.Command
	c.client.SubmissionTimeout = s.config.Timeouts.Final
	c.stage = StageGreeting
	err = c.client.Hello(s.hello)
	if c.guard.hasSpoken() {
		c.stage = StageHello
	}
	if err != nil {
		return err
	}
	if s.config.Auth == NoAuth {
		return nil
	}
	c.stage = StageAuth
	return authenticate(c.client, s.config.Auth, as)
}

func (s *Sender) askCredentials(ctx context.Context) (credentials, error) {
	if s.config.Auth == NoAuth {
		return credentials{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeouts.Command)
	defer cancel()
	user, password, err := s.config.Credentials(ctx)
	as := credentials{user, password}
	if err == nil {
		err = as.check()
	}
	if err == nil {
		return as, nil
	}
	own, is := errors.AsType[*Failure](err)
	switch {
	case is:
		return credentials{}, &refusal{own.Kind, own.Text}
	case ctx.Err() != nil:
		return credentials{}, err
	default:
		return credentials{}, &refusal{Configuration, plain(err.Error(), as.secrets())}
	}
}

func (c *connection) dial(ctx context.Context) error {
	s := c.sender
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeouts.Dial)
	defer cancel()
	raw, err := s.config.Dial(ctx, "tcp", net.JoinHostPort(s.config.Host, strconv.Itoa(s.config.Port)))
	if err != nil {
		return err
	}
	c.raw = raw
	if s.config.TLS == NoTLS && s.config.PlaintextTo != s.config.Host && leavesMachine(raw) {
		return &refusal{Configuration, "tls None is for this machine, but " + s.config.Host + " is at " + raw.RemoteAddr().String()}
	}
	return nil
}

// protect brings the connection to where the SMTP client takes it over.
func (c *connection) protect(ctx context.Context) error {
	s := c.sender
	var greeting []byte
	if s.config.TLS == StartTLS {
		var err error
		within := func() error { return c.guard.SetDeadline(clock.MachineNow().Add(s.config.Timeouts.Command)) }
		greeting, err = askForTLS(c.guard, s.hello, within, func(stage Stage) { c.stage = stage })
		if err != nil {
			return err
		}
	}
	if s.config.TLS == NoTLS {
		return nil
	}
	c.stage = StageTLS
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeouts.TLS)
	defer cancel()
	if err := c.guard.SetDeadline(time.Time{}); err != nil {
		return err
	}
	protected := tls.Client(c.raw, s.tls)
	if err := protected.HandshakeContext(ctx); err != nil {
		return err
	}
	c.guard = newGuard(protected, c.raw, greeting)
	return nil
}

// drop closes the connection at once. A message that is under way stays without
// its final dot, and TLS takes no leave of a server that may not be listening.
func (c *connection) drop() {
	if c.raw != nil {
		_ = c.raw.Close() // the failure that led here is the one that counts
	}
}

// farewell is how long a connection that has done well takes to say goodbye.
const farewell = 2 * time.Second

// quit ends a connection on which nothing is under way (RFC 5321 section 4.1.1.10).
func (c *connection) quit() {
	c.guard.begin(clock.MachineNow().Add(farewell))
	_ = c.client.Quit() // the messages have been taken; a missing 221 changes nothing
	c.drop()
}
