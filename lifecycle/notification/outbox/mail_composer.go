// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
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
)

// Dependencies holds the dependencies of a sender besides its configuration.
type Dependencies struct {
	// Client reads Notices from the cache and writes; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Events records when mail pauses and resumes.
	Events events.EventRecorder
	// Clock is policy time.
	Clock policytime.Clock
}

// NewSender returns the sender for a validated mail configuration. It fails if the CA file cannot be
// read. The Secrets and the ConfigMap of templates that the configuration names are read by name
// before each use, so changes take effect at once. The sender never stores a password, and no error
// contains one.
func NewSender(cfg *config.Mail, deps Dependencies) (*Sender, error) {
	from, err := cfg.Sender()
	if err != nil {
		return nil, fmt.Errorf("mail.from: %w", err)
	}
	limits := DefaultLimits()
	secrets := &secretReader{live: deps.Live, mail: cfg}
	transport := &smtpTransport{config: cfg, secrets: secrets, from: from.Address, sendTimeout: limits.SendTimeout}
	if cfg.CAFile != "" {
		if transport.ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, fmt.Errorf("mail.caFile: %w", err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "lifecycle"
	}
	return &Sender{
		Client: deps.Client, Live: deps.Live, Events: deps.Events, Clock: deps.Clock,
		Composer:    &composer{live: deps.Live, config: cfg, from: from},
		Transport:   transport,
		Fingerprint: secrets.fingerprint,
		Identity:    host + "_" + uuid.NewString(),
		Limits:      limits,
		Rates:       Rates{PerMinute: *cfg.Rate.PerMinute, PerRecipientPerDay: *cfg.Rate.PerRecipientPerDay},
	}, nil
}

// composer renders mails with the current templates.
type composer struct {
	live   client.Reader
	config *config.Mail
	from   mail.Address

	mu sync.Mutex
	// templatesVersion is the version of the ConfigMap that templates were parsed from.
	templatesVersion string
	templates        *noticemail.Templates
}

// Compose implements [Composer].
func (c *composer) Compose(ctx context.Context, request ComposeRequest) (*Message, error) {
	templates, err := c.loadTemplates(ctx)
	if err != nil {
		return nil, err
	}
	mailRequest := noticemail.ComposeRequest{
		Notice: request.Notice, Carried: request.Carried, Now: request.Now,
		Sequence: request.Sequence, Sequences: request.Sequences, Canceled: request.Canceled,
		From: c.from, ReplyTo: c.config.ReplyTo, Domain: c.config.Domain, Templates: templates,
	}
	m, err := noticemail.Compose(mailRequest)
	if err != nil && c.config.Templates != "" {
		// Fall back to the built-in text if an override fails on these inputs.
		templateErr := err
		mailRequest.Templates = noticemail.BuiltinTemplates()
		if m, err = noticemail.Compose(mailRequest); err == nil {
			ctrl.LoggerFrom(ctx).WithName("outbox").Error(errors.New(publicReason(templateErr)), "Failed to render custom template; used the built-in one",
				"notice", request.Notice.Name)
		}
	}
	if err != nil {
		return nil, err
	}
	return &Message{MessageID: m.MessageID, Bytes: m.Bytes}, nil
}

// loadTemplates returns the built-in templates with the overrides of the ConfigMap, which are
// validated when it changes.
func (c *composer) loadTemplates(ctx context.Context) (*noticemail.Templates, error) {
	if c.config.Templates == "" {
		return noticemail.BuiltinTemplates(), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var object corev1.ConfigMap
	if err := c.live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: c.config.Templates}, &object); err != nil {
		return nil, readFailure(err, fmt.Errorf("mail.templates: get ConfigMap: %w", err))
	}
	version := string(object.UID) + " " + object.ResourceVersion
	if c.templates != nil && c.templatesVersion == version {
		return c.templates, nil
	}
	templates, err := noticemail.ParseTemplates(object.Data)
	if err != nil {
		return nil, &Failure{
			Kind: ConfigurationFailure, Err: fmt.Errorf("mail.templates: ConfigMap %s: %w", c.config.Templates, err),
		}
	}
	c.templates, c.templatesVersion = templates, version
	return templates, nil
}
