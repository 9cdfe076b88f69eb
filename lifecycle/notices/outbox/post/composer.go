// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package post

import (
	"context"
	"fmt"
	"net/mail"
	"sync"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/notices/message"
	"sluice.dev/lifecycle/notices/outbox"
)

// composer writes mails in the words that are in force.
type composer struct {
	live   client.Reader
	config *config.Mail
	from   mail.Address

	mu sync.Mutex
	// version is that of the ConfigMap from which templates were read last.
	version   string
	templates *message.Templates
}

// Compose implements [outbox.Composer].
func (c *composer) Compose(ctx context.Context, letter outbox.Letter) (*outbox.Mail, error) {
	templates, err := c.words(ctx)
	if err != nil {
		return nil, err
	}
	made := message.Letter{
		Notice: letter.Notice, Carried: letter.Carried, Sequence: letter.Sequence, Sequences: letter.Sequences, Cancelled: letter.Cancelled,
		From: c.from, ReplyTo: c.config.ReplyTo, Domain: c.config.Domain, Templates: templates,
	}
	m, err := message.Compose(made)
	if err != nil && c.config.Templates != "" {
		// A text that fails on what no example has is no reason to say nothing.
		why := err
		made.Templates = message.Builtin()
		if m, err = message.Compose(made); err == nil {
			ctrl.LoggerFrom(ctx).WithName("outbox").Error(why, "a text of mail.templates cannot be used; the one built in is", "notice", letter.Notice.Name)
		}
	}
	if err != nil {
		return nil, err
	}
	return &outbox.Mail{MessageID: m.MessageID, Bytes: m.Bytes}, nil
}

// words are the templates: those built in, or the ConfigMap's, checked when it
// changes.
func (c *composer) words(ctx context.Context) (*message.Templates, error) {
	if c.config.Templates == "" {
		return message.Builtin(), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var object corev1.ConfigMap
	if err := c.live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: c.config.Templates}, &object); err != nil {
		return nil, failed(err, fmt.Errorf("mail.templates: reading the ConfigMap: %w", err))
	}
	version := string(object.UID) + " " + object.ResourceVersion
	if c.templates != nil && c.version == version {
		return c.templates, nil
	}
	templates, err := message.Parse(object.Data)
	if err != nil {
		return nil, &outbox.Failure{Fault: outbox.Configuration, Err: fmt.Errorf("mail.templates: ConfigMap %s: %w", c.config.Templates, err)}
	}
	c.templates, c.version = templates, version
	return templates, nil
}
