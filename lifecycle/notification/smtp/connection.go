// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/emersion/go-smtp"

	"sluice.dev/api/policytime"
)

// connection is a connection that is ready for MAIL or being established.
type connection struct {
	sender       *Sender
	raw          net.Conn
	conn         *limitedConn
	client       *smtp.Client
	stage        Stage
	secrets      []string
	sentMessages int

	canceled bool // its deadline may expire at any moment
}

// connect opens a connection and makes it ready for MAIL before the limit. Its error is a
// *Failure; the connection is closed then.
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
	creds, err := s.loadCredentials(ctx)
	if err != nil {
		return err
	}
	c.secrets = creds.encodedSecrets()

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
	// negotiateTLS replaced the limitedConn by one above TLS.
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
	return authenticate(c.client, s.config.Auth, creds)
}

func (s *Sender) loadCredentials(ctx context.Context) (credentials, error) {
	if s.config.Auth == NoAuth {
		return credentials{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeouts.Command)
	defer cancel()
	user, password, err := s.config.Credentials(ctx)
	creds := credentials{user, password}
	if err == nil {
		err = creds.validate()
	}
	if err == nil {
		return creds, nil
	}
	failure, is := errors.AsType[*Failure](err)
	switch {
	case is:
		return credentials{}, &localFailure{failure.Kind, failure.Text}
	case ctx.Err() != nil:
		return credentials{}, err
	default:
		return credentials{}, &localFailure{ConfigurationFailure, sanitizeText(err.Error(), creds.encodedSecrets())}
	}
}

func (c *connection) dial(ctx context.Context) error {
	s := c.sender
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeouts.Dial)
	defer cancel()
	raw, err := s.config.Dial(ctx, "tcp", s.server)
	if err != nil {
		return err
	}
	c.raw = raw
	if s.config.TLS == NoTLS && s.config.PlaintextTo != s.config.Host && isRemote(raw) {
		return &localFailure{
			ConfigurationFailure, "tls None is for a server on this machine, but " + s.config.Host + " is at " + raw.RemoteAddr().String(),
		}
	}
	return nil
}

// negotiateTLS runs STARTTLS or implicit TLS, before the SMTP client uses the connection.
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
	tlsConn := tls.Client(c.raw, s.tls)
	if err := tlsConn.HandshakeContext(ctx); err != nil {
		return err
	}
	c.conn = newLimitedConn(tlsConn, c.raw, greeting)
	return nil
}

// closeNow closes the connection without the final dot of a pending message and without TLS's
// close_notify, which could block.
func (c *connection) closeNow() {
	if c.raw != nil {
		_ = c.raw.Close() // the failure that led here is the one that counts
	}
}

// quitTimeout bounds QUIT on an idle connection.
const quitTimeout = 2 * time.Second

// quit closes an idle connection with QUIT (RFC 5321 section 4.1.1.10).
func (c *connection) quit() {
	c.conn.setLimit(policytime.MachineNow().Add(quitTimeout))
	_ = c.client.Quit() // the messages are accepted; a missing 221 changes nothing
	c.closeNow()
}
