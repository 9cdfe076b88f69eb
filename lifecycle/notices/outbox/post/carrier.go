// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package post

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/notices/outbox"
	"sluice.dev/lifecycle/notices/wire"
)

// carrier brings mails to the mail server of the configuration.
type carrier struct {
	config  *config.Mail
	secrets *secrets
	from    string
	// ca is what mail.caFile said when it was last readable; limit bounds a sending.
	ca    []byte
	limit time.Duration

	mu sync.Mutex
	// sender is the wire's, for the certificates and the key with which it was made.
	sender  *wire.Sender
	madeFor []byte
	dkim    []byte
}

// Send implements [outbox.Carrier].
func (c *carrier) Send(ctx context.Context, to string, mail []byte) error {
	sender, err := c.wire(ctx)
	if err != nil {
		return err
	}
	err = sender.Send(ctx, wire.Envelope{From: c.from, To: to}, mail)
	var failure *wire.Failure
	if errors.As(err, &failure) {
		return &outbox.Failure{Fault: faultOf(failure), Late: late[failure.Stage], Err: err}
	}
	return err
}

// wire is the sender for the certificates and the key that there are now. They are
// renewed while the process runs.
func (c *carrier) wire(ctx context.Context) (*wire.Sender, error) {
	var key []byte
	if c.config.DKIM != nil {
		secret, err := c.secrets.read(ctx, "dkim.keySecret", c.config.DKIM.KeySecret, keyDKIM)
		if err != nil {
			return nil, err
		}
		key = secret.Data[keyDKIM]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config.CAFile != "" {
		if ca, err := os.ReadFile(c.config.CAFile); err == nil {
			c.ca = ca
		}
	}
	if c.sender != nil && bytes.Equal(c.madeFor, c.ca) && bytes.Equal(c.dkim, key) {
		return c.sender, nil
	}
	sender, err := wire.New(c.wireConfig(key))
	if err != nil {
		return nil, &outbox.Failure{Fault: outbox.Configuration, Err: fmt.Errorf("mail: %w", err)}
	}
	c.sender, c.madeFor, c.dkim = sender, c.ca, key
	return sender, nil
}

// wireConfig says it in the wire's words.
func (c *carrier) wireConfig(key []byte) wire.Config {
	made := wire.Config{
		Host: c.config.Host(), Port: c.config.Port(), TLS: wire.TLSMode(c.config.TLS), PlaintextTo: c.config.PlaintextTo,
		CA: c.ca, ServerName: c.config.ServerName, HELO: c.config.Hello, Auth: wire.AuthMode(c.config.Auth),
		// A claim lasts longer than all of these together.
		Timeouts: wire.Timeouts{Command: time.Minute, Body: 2 * time.Minute, Final: c.limit - time.Minute, Total: c.limit},
	}
	if c.config.CredentialsSecret != nil {
		made.Credentials = c.credentials
	}
	if c.config.DKIM != nil {
		made.DKIM = &wire.DKIM{Domain: c.config.DKIM.Domain, Selector: c.config.DKIM.Selector, Key: key}
	}
	return made
}

// credentials are the Secret's. That the API server is away is no fault of theirs.
func (c *carrier) credentials(ctx context.Context) (user, password string, err error) {
	user, password, err = c.secrets.credentials(ctx)
	var failure *outbox.Failure
	if errors.As(err, &failure) && failure.Fault == outbox.Server {
		err = &wire.Failure{Kind: wire.Temporary, Stage: wire.StageCredentials, Text: err.Error(), Server: c.config.Server}
	}
	return user, password, err
}

// late are the stages at which the server has heard whom the message is for.
var late = map[wire.Stage]bool{wire.StageRcpt: true, wire.StageData: true, wire.StageBody: true, wire.StageFinal: true}

// faultOf is whose fault a failure is. Before a recipient was named, or where the
// server says that it is full (RFC 3463, 4.3) or closes (421, RFC 5321 section 3.8), it
// is the server's, and no message is to blame; after that it may be this message's.
func faultOf(f *wire.Failure) outbox.Fault {
	switch f.Kind {
	case wire.Recipient:
		return outbox.Recipient
	case wire.Configuration:
		return outbox.Configuration
	case wire.Unknown:
		return outbox.Unknown
	}
	switch f.Stage {
	case wire.StageCredentials, wire.StageDial, wire.StageGreeting, wire.StageHello, wire.StageStartTLS, wire.StageTLS, wire.StageAuth, wire.StageMail:
		return outbox.Server
	}
	if f.Code == 421 || strings.HasPrefix(f.Enhanced, "4.3.") {
		return outbox.Server
	}
	return outbox.Temporary
}
