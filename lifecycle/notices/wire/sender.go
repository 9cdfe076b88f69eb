// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/emersion/go-msgauth/dkim"

	"sluice.dev/api/clock"
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
	config Config
	server string
	hello  string
	tls    *tls.Config
	dkim   *dkim.SignOptions

	leaving sync.WaitGroup // connections that say goodbye
	mu      sync.Mutex
	waiting []*idle
	closed  bool
}

// New checks a configuration and makes a sender of it. It dials nothing. Its error
// names every field that is wrong, in the words of the configuration file.
func New(config Config) (*Sender, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	protection, err := config.tlsConfig()
	if err != nil {
		return nil, err
	}
	s := &Sender{
		config: config,
		server: net.JoinHostPort(config.Host, strconv.Itoa(config.Port)),
		hello:  config.hello(),
		tls:    protection,
	}
	if config.DKIM != nil {
		if s.dkim, err = config.DKIM.options(); err != nil {
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
	limit := clock.MachineNow().Add(s.config.Timeouts.Total)
	p, stage, err := s.pack(envelope, mail)
	if err != nil {
		return s.failure(ctx, stage, nil, err)
	}
	if cause := context.Cause(ctx); cause != nil {
		return s.failure(ctx, StageDial, nil, cause)
	}
	if c := s.take(); c != nil {
		err := c.carry(ctx, limit, p)
		if err == nil {
			s.keep(c)
			return nil
		}
		if !stale(err) || ctx.Err() != nil {
			return err
		}
	}
	bounded, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	c, err := s.connect(bounded, limit)
	if err != nil {
		return err
	}
	if err := c.carry(ctx, limit, p); err != nil {
		return err
	}
	s.keep(c)
	return nil
}

// stale is whether a connection that was used before had been closed by the server
// meanwhile: nothing of the message has been said, so another one may be tried.
func stale(err error) bool {
	f, is := errors.AsType[*Failure](err)
	return is && f.Stage == StageMail && (f.Code == 421 || f.Code == 0 && f.Kind == Temporary)
}

// pack checks all that can be known before the server is dialled, and signs.
func (s *Sender) pack(envelope Envelope, mail []byte) (parcel, Stage, error) {
	from, err := checkAddress(envelope.From)
	if err != nil {
		return parcel{}, StageAddress, &refusal{Configuration, fmt.Sprintf("the sender %q is not an address: %v", envelope.From, err)}
	}
	to, err := checkAddress(envelope.To)
	if err != nil {
		return parcel{}, StageAddress, &refusal{Recipient, fmt.Sprintf("%q is not an address: %v", envelope.To, err)}
	}
	checked, err := checkLetter(mail)
	if err == nil && s.dkim != nil {
		if mail, err = sign(mail, s.dkim); err == nil {
			checked, err = checkLetter(mail)
		}
	}
	if err != nil {
		return parcel{}, StageMessage, &refusal{Recipient, fmt.Sprintf("the message cannot be sent: %v", err)}
	}
	return parcel{from: from, to: to, letter: checked}, "", nil
}
