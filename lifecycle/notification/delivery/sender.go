// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package post joins the outbox to what writes mails and what brings them to the mail
// server, as the configuration of mail says.
//
// Enters: that configuration, and the Secrets and the ConfigMap of texts that it
// names, which are read by name each time they are needed: what changes counts at
// once. Leaves: an outbox.Sender.
//
// It never keeps a password, and none is in its errors.
package delivery

import (
	"context"
	"fmt"
	"net/mail"
	"os"
	"sync"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	noticemail "sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/notification/outbox"
)

// Dependencies are what a sender is made of besides its configuration.
type Dependencies struct {
	// Client reads Notices from the cache and writes; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Events are told when mail pauses and goes on.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock
}

// NewSender is the sender of a configuration, which has been validated. It fails
// where the certificates cannot be read that the configuration names.
func NewSender(cfg *config.Mail, parts Dependencies) (*outbox.Sender, error) {
	from, err := cfg.Sender()
	if err != nil {
		return nil, fmt.Errorf("mail.from: %w", err)
	}
	limits := outbox.DefaultLimits()
	secrets := &secretReader{live: parts.Live, mail: cfg}
	carrier := &transport{config: cfg, secrets: secrets, from: from.Address, sendTimeout: limits.SendTimeout}
	if cfg.CAFile != "" {
		if carrier.ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, fmt.Errorf("mail.caFile: %w", err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "lifecycle"
	}
	return &outbox.Sender{
		Client: parts.Client, Live: parts.Live, Events: parts.Events, Clock: parts.Clock,
		Composer:    &composer{live: parts.Live, config: cfg, from: from},
		Transport:   carrier,
		Fingerprint: secrets.fingerprint,
		Identity:    host + "_" + uuid.NewString(),
		Limits:      limits,
		Rates:       outbox.Rates{PerMinute: *cfg.Rate.PerMinute, PerRecipientPerDay: *cfg.Rate.PerRecipientPerDay},
	}, nil
}

// composer writes mails in the words that are in force.
type composer struct {
	live   client.Reader
	config *config.Mail
	from   mail.Address

	mu sync.Mutex
	// templatesVersion is that of the ConfigMap from which templates were read last.
	templatesVersion string
	templates        *noticemail.Templates
}

// Compose implements [outbox.Composer].
func (c *composer) Compose(ctx context.Context, letter outbox.ComposeRequest) (*outbox.Message, error) {
	templates, err := c.loadTemplates(ctx)
	if err != nil {
		return nil, err
	}
	made := noticemail.ComposeRequest{
		Notice: letter.Notice, Carried: letter.Carried, Sequence: letter.Sequence, Sequences: letter.Sequences, Canceled: letter.Canceled,
		From: c.from, ReplyTo: c.config.ReplyTo, Domain: c.config.Domain, Templates: templates,
	}
	m, err := noticemail.Compose(made)
	if err != nil && c.config.Templates != "" {
		// A text that fails on what no example has is no reason to say nothing.
		why := err
		made.Templates = noticemail.BuiltinTemplates()
		if m, err = noticemail.Compose(made); err == nil {
			ctrl.LoggerFrom(ctx).WithName("outbox").Error(why, "a text of mail.templates cannot be used; the one built in is", "notice", letter.Notice.Name)
		}
	}
	if err != nil {
		return nil, err
	}
	return &outbox.Message{MessageID: m.MessageID, Bytes: m.Bytes}, nil
}

// loadTemplates are the templates: those built in, or the ConfigMap's, checked when it
// changes.
func (c *composer) loadTemplates(ctx context.Context) (*noticemail.Templates, error) {
	if c.config.Templates == "" {
		return noticemail.BuiltinTemplates(), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var object corev1.ConfigMap
	if err := c.live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: c.config.Templates}, &object); err != nil {
		return nil, readFailure(err, fmt.Errorf("mail.templates: reading the ConfigMap: %w", err))
	}
	version := string(object.UID) + " " + object.ResourceVersion
	if c.templates != nil && c.templatesVersion == version {
		return c.templates, nil
	}
	templates, err := noticemail.ParseTemplates(object.Data)
	if err != nil {
		return nil, &outbox.Failure{Kind: outbox.ConfigurationFailure, Err: fmt.Errorf("mail.templates: ConfigMap %s: %w", c.config.Templates, err)}
	}
	c.templates, c.templatesVersion = templates, version
	return templates, nil
}
