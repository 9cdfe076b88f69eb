// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package delivery

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
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/notification/smtp"
)

// transport brings mails to the mail server of the configuration.
type transport struct {
	config  *config.Mail
	secrets *secretReader
	from    string
	// ca is what mail.caFile said when it was last readable; limit bounds a sending.
	ca          []byte
	sendTimeout time.Duration

	mu sync.Mutex
	// sender is the wire's, for the certificates and the key with which it was made.
	sender        *smtp.Sender
	senderCA      []byte
	senderDKIMKey []byte
}

// Send implements [outbox.Transport].
func (c *transport) Send(ctx context.Context, to string, mail []byte) error {
	sender, err := c.smtpSender(ctx)
	if err != nil {
		return err
	}
	err = sender.Send(ctx, smtp.Envelope{From: c.from, To: to}, mail)
	var failure *smtp.Failure
	if errors.As(err, &failure) {
		return &outbox.Failure{Kind: outboxFailureKind(failure), AfterRecipient: stagesAfterRecipient[failure.Stage], Err: err}
	}
	return err
}

// smtpSender is the sender for the certificates and the key that there are now. They are
// renewed while the process runs.
func (c *transport) smtpSender(ctx context.Context) (*smtp.Sender, error) {
	var key []byte
	if c.config.DKIM != nil {
		secret, err := c.secrets.readSecret(ctx, "dkim.keySecret", c.config.DKIM.KeySecret, dkimPrivateKey)
		if err != nil {
			return nil, err
		}
		key = secret.Data[dkimPrivateKey]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config.CAFile != "" {
		if ca, err := os.ReadFile(c.config.CAFile); err == nil {
			c.ca = ca
		}
	}
	if c.sender != nil && bytes.Equal(c.senderCA, c.ca) && bytes.Equal(c.senderDKIMKey, key) {
		return c.sender, nil
	}
	sender, err := smtp.New(c.smtpConfig(key))
	if err != nil {
		return nil, &outbox.Failure{Kind: outbox.ConfigurationFailure, Err: fmt.Errorf("mail: %w", err)}
	}
	c.sender, c.senderCA, c.senderDKIMKey = sender, c.ca, key
	return sender, nil
}

// smtpConfig says it in the wire's words.
func (c *transport) smtpConfig(key []byte) smtp.Config {
	made := smtp.Config{
		Host: c.config.Host(), Port: c.config.Port(), TLS: smtp.TLSMode(c.config.TLS), PlaintextTo: c.config.PlaintextTo,
		CA: c.ca, ServerName: c.config.ServerName, HELO: c.config.Hello, Auth: smtp.AuthMode(c.config.Auth),
		// A claim lasts longer than all of these together.
		Timeouts: smtp.Timeouts{Command: time.Minute, Body: 2 * time.Minute, Final: c.sendTimeout - time.Minute, Total: c.sendTimeout},
	}
	if c.config.CredentialsSecret != nil {
		made.Credentials = c.credentials
	}
	if c.config.DKIM != nil {
		made.DKIM = &smtp.DKIM{Domain: c.config.DKIM.Domain, Selector: c.config.DKIM.Selector, Key: key}
	}
	return made
}

// credentials are the Secret's. That the API server is away is no fault of theirs.
func (c *transport) credentials(ctx context.Context) (user, password string, err error) {
	user, password, err = c.secrets.credentials(ctx)
	var failure *outbox.Failure
	if errors.As(err, &failure) && failure.Kind == outbox.ServerFailure {
		err = &smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageCredentials, Text: err.Error(), Server: c.config.Server}
	}
	return user, password, err
}

// stagesAfterRecipient are the stages at which the server has heard whom the message is for.
var stagesAfterRecipient = map[smtp.Stage]bool{smtp.StageRcpt: true, smtp.StageData: true, smtp.StageBody: true, smtp.StageFinal: true}

// outboxFailureKind is whose fault a failure is. Before a recipient was named, or where the
// server says that it is full (RFC 3463, 4.3) or closes (421, RFC 5321 section 3.8), it
// is the server's, and no message is to blame; after that it may be this message's.
func outboxFailureKind(f *smtp.Failure) outbox.FailureKind {
	switch f.Kind {
	case smtp.RecipientFailure:
		return outbox.RecipientFailure
	case smtp.ConfigurationFailure:
		return outbox.ConfigurationFailure
	case smtp.UnknownOutcome:
		return outbox.UnknownOutcome
	}
	switch f.Stage {
	case smtp.StageCredentials, smtp.StageDial, smtp.StageGreeting, smtp.StageHello, smtp.StageStartTLS, smtp.StageTLS, smtp.StageAuth, smtp.StageMail:
		return outbox.ServerFailure
	}
	if f.Code == 421 || strings.HasPrefix(f.Enhanced, "4.3.") {
		return outbox.ServerFailure
	}
	return outbox.TemporaryFailure
}
