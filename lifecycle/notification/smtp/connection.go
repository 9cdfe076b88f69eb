// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/emersion/go-smtp"

	"sluice.dev/api/policytime"
)

// connection is one that is ready for MAIL, or on the way there.
type connection struct {
	sender       *Sender
	raw          net.Conn
	conn         *limitedConn
	client       *smtp.Client
	stage        Stage
	secrets      []string
	sentMessages int // messages

	canceled bool // its deadline may be cut at any moment
}

// connect opens a connection and makes it ready for MAIL before the limit. Its
// error is a *Failure, and then nothing is left open.
func (s *Sender) connect(ctx context.Context, limit time.Time) (*connection, error) {
	c := &connection{sender: s, stage: StageCredentials}
	if err := c.establish(ctx, limit); err != nil {
		c.closeNow()
		return nil, s.newFailure(ctx, c.stage, c.secrets, err)
	}
	return c, nil
}

func (c *connection) establish(ctx context.Context, limit time.Time) error {
	s := c.sender
	as, err := s.loadCredentials(ctx)
	if err != nil {
		return err
	}
	c.secrets = as.encodedSecrets()

	c.stage = StageDial
	if err := c.dial(ctx); err != nil {
		return err
	}
	c.conn = newLimitedConn(c.raw, c.raw, nil)
	c.conn.setLimit(limit)
	stop := context.AfterFunc(ctx, c.conn.cancel)
	err = c.negotiateTLS(ctx)
	stop()
	if err != nil {
		return err
	}
	// Above TLS a new guard counts what the server says.
	c.conn.setLimit(limit)
	defer context.AfterFunc(ctx, c.conn.cancel)()

	c.client = smtp.NewClient(c.conn)
	c.client.CommandTimeout = s.config.Timeouts.Command
	c.client.SubmissionTimeout = s.config.Timeouts.Final
	c.stage = StageGreeting
	err = c.client.Hello(s.helloName)
	if c.conn.hasWritten() {
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

func (s *Sender) loadCredentials(ctx context.Context) (credentials, error) {
	if s.config.Auth == NoAuth {
		return credentials{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeouts.Command)
	defer cancel()
	user, password, err := s.config.Credentials(ctx)
	as := credentials{user, password}
	if err == nil {
		err = as.validate()
	}
	if err == nil {
		return as, nil
	}
	own, is := errors.AsType[*Failure](err)
	switch {
	case is:
		return credentials{}, &localFailure{own.Kind, own.Text}
	case ctx.Err() != nil:
		return credentials{}, err
	default:
		return credentials{}, &localFailure{ConfigurationFailure, sanitizeText(err.Error(), as.encodedSecrets())}
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
	if s.config.TLS == NoTLS && s.config.PlaintextTo != s.config.Host && isRemote(raw) {
		return &localFailure{ConfigurationFailure, "tls None is for this machine, but " + s.config.Host + " is at " + raw.RemoteAddr().String()}
	}
	return nil
}

// negotiateTLS brings the connection to where the SMTP client takes it over.
func (c *connection) negotiateTLS(ctx context.Context) error {
	s := c.sender
	var greeting []byte
	if s.config.TLS == StartTLS {
		var err error
		within := func() error { return c.conn.SetDeadline(policytime.MachineNow().Add(s.config.Timeouts.Command)) }
		greeting, err = requestStartTLS(c.conn, s.helloName, within, func(stage Stage) { c.stage = stage })
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
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	protected := tls.Client(c.raw, s.tls)
	if err := protected.HandshakeContext(ctx); err != nil {
		return err
	}
	c.conn = newLimitedConn(protected, c.raw, greeting)
	return nil
}

// closeNow closes the connection at once. A message that is under way stays without
// its final dot, and TLS takes no leave of a server that may not be listening.
func (c *connection) closeNow() {
	if c.raw != nil {
		_ = c.raw.Close() // the failure that led here is the one that counts
	}
}

// quitTimeout is how long a connection that has done well takes to say goodbye.
const quitTimeout = 2 * time.Second

// quit ends a connection on which nothing is under way (RFC 5321 section 4.1.1.10).
func (c *connection) quit() {
	c.conn.setLimit(policytime.MachineNow().Add(quitTimeout))
	_ = c.client.Quit() // the messages have been taken; a missing 221 changes nothing
	c.closeNow()
}
