// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/emersion/go-smtp"

	"sluice.dev/api/policytime"
)

// submission is a checked envelope with its checked message.
type submission struct {
	from, to address
	message  checkedMessage
}

// send brings one message over the connection. Its error is a *Failure, and then
// the connection is closed.
func (c *connection) send(ctx context.Context, limit time.Time, p submission) error {
	c.conn.setLimit(limit)
	stop := context.AfterFunc(ctx, c.conn.cancel)
	err := c.runTransaction(p)
	c.canceled = !stop()
	if err != nil {
		// Never the writer of DATA: closing that would end the message, and the
		// server would deliver its first half.
		c.closeNow()
		return c.sender.newFailure(ctx, c.stage, c.secrets, err)
	}
	c.sentMessages++
	return nil
}

func (c *connection) runTransaction(p submission) error {
	c.stage = StageMail
	options, err := c.mailOptions(p)
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
	if err := c.conn.SetDeadline(policytime.MachineNow().Add(c.sender.config.Timeouts.Body)); err != nil {
		return err
	}
	if _, err := body.Write(p.message.bytes); err != nil {
		return err
	}
	c.conn.markMessageComplete()
	_, err = body.CloseWithResponse()
	if c.conn.hasFailedWrite() {
		return err // the final dot has not gone out
	}
	c.stage = StageFinal
	// Any 2yz is a yes (RFC 5321 section 4.2.1); the client knows only 250.
	if reply, is := errors.AsType[*smtp.SMTPError](err); is && reply.Code/100 == 2 {
		return nil
	}
	return err
}

// mailOptions says how MAIL is to be said, and whether this server can take this message at
// all: asking is cheaper than sending it.
func (c *connection) mailOptions(p submission) (*smtp.MailOptions, error) {
	size := len(p.message.bytes)
	if most, said := c.client.MaxMessageSize(); said && most > 0 && size > most {
		return nil, &localFailure{RecipientFailure, fmt.Sprintf("the message has %d bytes; the server takes %d", size, most)}
	}
	if offered, _ := c.client.Extension("8BITMIME"); !offered && p.message.eightBit {
		return nil, &localFailure{RecipientFailure, "the message has bytes beyond ASCII, and the server does not offer 8BITMIME"}
	}
	wanted := p.from.utf8 || p.to.utf8 || p.message.utf8Headers
	if offered, _ := c.client.Extension("SMTPUTF8"); wanted && !offered {
		switch {
		case p.from.utf8:
			return nil, &localFailure{ConfigurationFailure, "the sender's address needs SMTPUTF8, which the server does not offer; use an ASCII address"}
		case p.to.utf8:
			return nil, &localFailure{RecipientFailure, "the address needs SMTPUTF8, which the server does not offer; use an ASCII address"}
		default:
			return nil, &localFailure{RecipientFailure, "the message's header needs SMTPUTF8, which the server does not offer"}
		}
	}
	return &smtp.MailOptions{Size: int64(size), UTF8: wanted}, nil
}

// maxMessageLineBytes is the longest line of a message without its line break: RFC 5321
// section 4.5.3.1.6, RFC 5322 section 2.1.1.
const maxMessageLineBytes = 998

// checkedMessage is a message that may go on the wire.
type checkedMessage struct {
	bytes       []byte
	utf8Headers bool // needs SMTPUTF8 (RFC 6532)
	eightBit    bool // needs 8BITMIME (RFC 6152)
}

// validateMessage lets through a whole message in its form for the wire: a header, an
// empty line, and lines that end with CRLF. Servers differ in what a lone CR or LF
// means to them, and that difference has been used to smuggle messages; so there
// is none.
func validateMessage(message []byte) (checkedMessage, error) {
	head, _, whole := bytes.Cut(message, []byte("\r\n\r\n"))
	if !whole || len(head) == 0 {
		return checkedMessage{}, errors.New("it has no empty line that ends its header: it is not whole")
	}
	if !bytes.HasSuffix(message, []byte("\r\n")) {
		return checkedMessage{}, errors.New("its last line has no line break: it is not whole")
	}
	number := 0
	for line := range bytes.Lines(message) {
		number++
		text, ended := bytes.CutSuffix(line, []byte("\r\n"))
		switch {
		case !ended:
			return checkedMessage{}, fmt.Errorf("line %d ends with a lone LF; lines end with CRLF", number)
		case bytes.IndexByte(text, '\r') >= 0:
			return checkedMessage{}, fmt.Errorf("line %d has a lone CR; lines end with CRLF", number)
		case bytes.IndexByte(text, 0) >= 0:
			return checkedMessage{}, fmt.Errorf("line %d has a NUL byte", number)
		case len(text) > maxMessageLineBytes:
			return checkedMessage{}, fmt.Errorf("line %d has %d bytes; %d are allowed", number, len(text), maxMessageLineBytes)
		}
	}
	return checkedMessage{bytes: message, utf8Headers: !isASCII(head), eightBit: !isASCII(message)}, nil
}
