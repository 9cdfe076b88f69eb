// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package post

import (
	"fmt"
	"os"

	"github.com/google/uuid"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/notices/outbox"
)

// Parts are what a sender is made of besides its configuration.
type Parts struct {
	// Client reads Notices from the cache and writes; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Events are told when mail pauses and goes on.
	Events events.EventRecorder
	// Clock is policy time.
	Clock clock.Clock
}

// NewSender is the sender of a configuration, which has been validated. It fails
// where the certificates cannot be read that the configuration names.
func NewSender(cfg *config.Mail, parts Parts) (*outbox.Sender, error) {
	from, err := cfg.Sender()
	if err != nil {
		return nil, fmt.Errorf("mail.from: %w", err)
	}
	limits := outbox.DefaultLimits()
	secrets := &secrets{live: parts.Live, mail: cfg}
	carrier := &carrier{config: cfg, secrets: secrets, from: from.Address, limit: limits.Sending}
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
		Carrier:     carrier,
		Fingerprint: secrets.fingerprint,
		Identity:    host + "_" + uuid.NewString(),
		Limits:      limits,
		Rates:       outbox.Rates{PerMinute: *cfg.Rate.PerMinute, PerRecipientPerDay: *cfg.Rate.PerRecipientPerDay},
	}, nil
}
