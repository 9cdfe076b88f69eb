// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/emersion/go-smtp"

	"sluice.dev/api/clock"
)

// parcel is a checked envelope with its checked message.
type parcel struct {
	from, to address
	letter   letter
}

// carry brings one message over the connection. Its error is a *Failure, and then
// the connection is closed.
func (c *connection) carry(ctx context.Context, limit time.Time, p parcel) error {
	c.guard.begin(limit)
	stop := context.AfterFunc(ctx, c.guard.callOff)
	err := c.transact(p)
	c.calledOff = !stop()
	if err != nil {
		// Never the writer of DATA: closing that would end the message, and the
		// server would deliver its first half.
		c.drop()
		return c.sender.failure(ctx, c.stage, c.secrets, err)
	}
	c.carried++
	return nil
}

func (c *connection) transact(p parcel) error {
	c.stage = StageMail
	options, err := c.fit(p)
	if err != nil {
		return err
	}
	if err := c.client.Mail(p.from.path, options); err != nil {
		return err
	}
	c.stage = StageRcpt
	if err := c.client.Rcpt(p.to.path, nil); err != nil {
		return err
	}
	c.stage = StageData
	body, err := c.client.Data()
	if err != nil {
		return err
	}
	c.stage = StageBody
	if err := c.guard.SetDeadline(clock.MachineNow().Add(c.sender.config.Timeouts.Body)); err != nil {
		return err
	}
	if _, err := body.Write(p.letter.bytes); err != nil {
		return err
	}
	c.guard.finish()
	_, err = body.CloseWithResponse()
	if c.guard.unheard() {
		return err // the final dot has not gone out
	}
	c.stage = StageFinal
	// Any 2yz is a yes (RFC 5321 section 4.2.1); the client knows only 250.
	if reply, is := errors.AsType[*smtp.SMTPError](err); is && reply.Code/100 == 2 {
		return nil
	}
	return err
}

// fit says how MAIL is to be said, and whether this server can take this message at
// all: asking is cheaper than sending it.
func (c *connection) fit(p parcel) (*smtp.MailOptions, error) {
	size := len(p.letter.bytes)
	if most, said := c.client.MaxMessageSize(); said && most > 0 && size > most {
		return nil, &refusal{Recipient, fmt.Sprintf("the message has %d bytes; the server takes %d", size, most)}
	}
	if offered, _ := c.client.Extension("8BITMIME"); !offered && p.letter.eightBit {
		return nil, &refusal{Recipient, "the message has bytes beyond ASCII, and the server does not offer 8BITMIME"}
	}
	wanted := p.from.utf8 || p.to.utf8 || p.letter.utf8Headers
	if offered, _ := c.client.Extension("SMTPUTF8"); wanted && !offered {
		switch {
		case p.from.utf8:
			return nil, &refusal{Configuration, "the sender's address needs SMTPUTF8, which the server does not offer; use an ASCII address"}
		case p.to.utf8:
			return nil, &refusal{Recipient, "the address needs SMTPUTF8, which the server does not offer; use an ASCII address"}
		default:
			return nil, &refusal{Recipient, "the message's header needs SMTPUTF8, which the server does not offer"}
		}
	}
	return &smtp.MailOptions{Size: int64(size), UTF8: wanted}, nil
}
