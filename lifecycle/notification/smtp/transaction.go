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

// send submits one message over the connection. Its error is a *Failure; the connection is
// closed then.
func (c *connection) send(ctx context.Context, limit time.Time, p submission) error {
	c.conn.setLimit(limit)
	stop := context.AfterFunc(ctx, c.conn.cancel)
	err := c.runTransaction(p)
	c.canceled = !stop()
	if err != nil {
		// Closing the DATA writer instead would send the final dot, and the server would
		// deliver a partial message.
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
		return err // the final dot was not sent
	}
	c.stage = StageFinal
	// Any 2yz reply accepts the message (RFC 5321 section 4.2.1); the client expects 250.
	if reply, is := errors.AsType[*smtp.SMTPError](err); is && reply.Code/100 == 2 {
		return nil
	}
	return err
}

// mailOptions returns the parameters of MAIL, or an error if the server's extensions rule out
// this message.
func (c *connection) mailOptions(p submission) (*smtp.MailOptions, error) {
	size := len(p.message.bytes)
	if limit, known := c.client.MaxMessageSize(); known && limit > 0 && size > limit {
		return nil, &localFailure{RecipientFailure, fmt.Sprintf("the message has %d bytes; the server accepts %d", size, limit)}
	}
	if offered, _ := c.client.Extension("8BITMIME"); !offered && p.message.eightBit {
		return nil, &localFailure{RecipientFailure, "the message has bytes beyond ASCII, and the server does not offer 8BITMIME"}
	}
	needsUTF8 := p.from.utf8 || p.to.utf8 || p.message.utf8Headers
	if offered, _ := c.client.Extension("SMTPUTF8"); needsUTF8 && !offered {
		switch {
		case p.from.utf8:
			text := "the sender's address needs SMTPUTF8, which the server does not offer; use an ASCII address"
			return nil, &localFailure{ConfigurationFailure, text}
		case p.to.utf8:
			return nil, &localFailure{RecipientFailure, "the address needs SMTPUTF8, which the server does not offer; use an ASCII address"}
		default:
			return nil, &localFailure{RecipientFailure, "the message's header needs SMTPUTF8, which the server does not offer"}
		}
	}
	return &smtp.MailOptions{Size: int64(size), UTF8: needsUTF8}, nil
}

// maxMessageLineBytes bounds a line of a message without its line break: RFC 5321
// section 4.5.3.1.6, RFC 5322 section 2.1.1.
const maxMessageLineBytes = 998

// checkedMessage is a valid message for DATA.
type checkedMessage struct {
	bytes       []byte
	utf8Headers bool // needs SMTPUTF8 (RFC 6532)
	eightBit    bool // needs 8BITMIME (RFC 6152)
}

// validateMessage accepts a complete message: a header, an empty line, and lines that end with
// CRLF. It refuses a lone CR or LF, since servers interpret them differently, which allows SMTP
// smuggling.
func validateMessage(message []byte) (checkedMessage, error) {
	head, _, whole := bytes.Cut(message, []byte("\r\n\r\n"))
	if !whole || len(head) == 0 {
		return checkedMessage{}, errors.New("it has no empty line after its header: it is incomplete")
	}
	if !bytes.HasSuffix(message, []byte("\r\n")) {
		return checkedMessage{}, errors.New("its last line has no line break: it is incomplete")
	}
	number := 0
	for line := range bytes.Lines(message) {
		number++
		text, complete := bytes.CutSuffix(line, []byte("\r\n"))
		switch {
		case !complete:
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
