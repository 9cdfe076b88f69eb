// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

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
	"sluice.dev/lifecycle/notification/smtp"
)

// smtpTransport submits mails to the configured mail server.
type smtpTransport struct {
	config  *config.Mail
	secrets *secretReader
	from    string
	// ca is the last readable content of mail.caFile; sendTimeout bounds a Send.
	ca          []byte
	sendTimeout time.Duration

	mu sync.Mutex
	// sender was created with senderCA and senderDKIMKey.
	sender        *smtp.Sender
	senderCA      []byte
	senderDKIMKey []byte
}

// Send implements [Transport].
func (t *smtpTransport) Send(ctx context.Context, to string, mail []byte) error {
	sender, err := t.smtpSender(ctx)
	if err != nil {
		return err
	}
	err = sender.Send(ctx, smtp.Envelope{From: t.from, To: to}, mail)
	var failure *smtp.Failure
	if errors.As(err, &failure) {
		return transportFailure(failure, to)
	}
	return err
}

// transportFailure converts a failure to send to an address.
func transportFailure(f *smtp.Failure, to string) *Failure {
	result := &Failure{Kind: smtpFailureKind(f), AfterRecipient: stagesAfterRecipient[f.Stage], Err: f}
	if result.AfterRecipient || f.Stage == smtp.StageAddress {
		result.Summary = f.Summary() // the server's words may contain the address
	}
	if result.Kind == DeniedFailure {
		result.Words = denialWords(f, to)
	}
	return result
}

// smtpSender returns the sender for the current certificates and key, which may change at run time.
func (t *smtpTransport) smtpSender(ctx context.Context) (*smtp.Sender, error) {
	var key []byte
	if t.config.DKIM != nil {
		secret, err := t.secrets.readSecret(ctx, "dkim.keySecret", t.config.DKIM.KeySecret, dkimPrivateKey)
		if err != nil {
			return nil, err
		}
		key = secret.Data[dkimPrivateKey]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.config.CAFile != "" {
		if ca, err := os.ReadFile(t.config.CAFile); err == nil {
			t.ca = ca
		}
	}
	if t.sender != nil && bytes.Equal(t.senderCA, t.ca) && bytes.Equal(t.senderDKIMKey, key) {
		return t.sender, nil
	}
	sender, err := smtp.New(t.smtpConfig(key))
	if err != nil {
		return nil, &Failure{Kind: ConfigurationFailure, Err: fmt.Errorf("mail: %w", err)}
	}
	t.sender, t.senderCA, t.senderDKIMKey = sender, t.ca, key
	return sender, nil
}

// smtpConfig converts the configuration.
func (t *smtpTransport) smtpConfig(key []byte) smtp.Config {
	cfg := smtp.Config{
		Host: t.config.Host(), Port: t.config.Port(), TLS: smtp.TLSMode(t.config.TLS), PlaintextTo: t.config.PlaintextTo,
		CA: t.ca, ServerName: t.config.ServerName, HELO: t.config.Hello, Auth: smtp.AuthMode(t.config.Auth),
		// A claim lasts longer than Total.
		Timeouts: smtp.Timeouts{Command: time.Minute, Body: 2 * time.Minute, Final: t.sendTimeout - time.Minute, Total: t.sendTimeout},
	}
	if t.config.CredentialsSecret != nil {
		cfg.Credentials = t.credentials
	}
	if t.config.DKIM != nil {
		cfg.DKIM = &smtp.DKIM{Domain: t.config.DKIM.Domain, Selector: t.config.DKIM.Selector, Key: key}
	}
	return cfg
}

// credentials reads the Secret. An unavailable API server is a temporary failure.
func (t *smtpTransport) credentials(ctx context.Context) (user, password string, err error) {
	user, password, err = t.secrets.credentials(ctx)
	var failure *Failure
	if errors.As(err, &failure) && failure.Kind == ServerFailure {
		err = &smtp.Failure{Kind: smtp.TemporaryFailure, Stage: smtp.StageCredentials, Text: err.Error(), Server: t.config.Server}
	}
	return user, password, err
}

// stagesAfterRecipient holds the stages from RCPT on.
var stagesAfterRecipient = map[smtp.Stage]bool{smtp.StageRcpt: true, smtp.StageData: true, smtp.StageBody: true, smtp.StageFinal: true}

// smtpFailureKind classifies a failure for the outbox. Before RCPT, or if the server is full (RFC
// 3463, 4.3) or closes (421, RFC 5321 section 3.8), it is a failure of the server; after that this
// message may cause it.
func smtpFailureKind(f *smtp.Failure) FailureKind {
	switch f.Kind {
	case smtp.RecipientFailure:
		return RecipientFailure
	case smtp.DeniedFailure:
		return DeniedFailure
	case smtp.ConfigurationFailure:
		return ConfigurationFailure
	case smtp.UnknownOutcome:
		return UnknownOutcome
	}
	switch f.Stage {
	case smtp.StageCredentials, smtp.StageDial, smtp.StageGreeting, smtp.StageHello, smtp.StageStartTLS, smtp.StageTLS,
		smtp.StageAuth, smtp.StageMail:
		return ServerFailure
	}
	if f.Code == 421 || strings.HasPrefix(f.Enhanced, "4.3.") {
		return ServerFailure
	}
	return TemporaryFailure
}
