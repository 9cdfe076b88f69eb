// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/emersion/go-smtp"
)

const (
	// MaxSize is how many bytes a mail may have: 10 MiB.
	MaxSize = 10 << 20
	// idle is how long a client may say nothing.
	idle = time.Minute
	// lastMoment is how long a mail may take that is under way when the sink ends.
	lastMoment = 3 * time.Second
)

// Run takes mail until ctx ends, and then returns nil. It fails at once where the
// certificate cannot be read, the folder cannot be made or the address is taken.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("mail sink: %w", err)
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(cfg.Certificates, "tls.crt"), filepath.Join(cfg.Certificates, "tls.key"))
	if err != nil {
		return fmt.Errorf("mail sink: certificates: %w", err)
	}
	folder, err := open(cfg.Dir)
	if err != nil {
		return fmt.Errorf("mail sink: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("mail sink: %w", err)
	}
	server := smtp.NewServer(&backend{config: cfg, folder: folder, log: log})
	server.Domain = "localhost"
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.MaxMessageBytes = MaxSize
	server.MaxRecipients = 1 // one file is one recipient's; a client sends to the next anew
	server.ReadTimeout, server.WriteTimeout = idle, idle
	server.EnableSMTPUTF8 = true
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	log.Info("takes mail", "address", listener.Addr().String())
	select {
	case err := <-ended:
		return fmt.Errorf("mail sink: %w", err)
	case <-ctx.Done():
	}
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMoment)
	defer cancel()
	if err := server.Shutdown(graceful); err != nil && !errors.Is(err, net.ErrClosed) {
		_ = server.Close() // what is still open is cut: such a mail is not kept, and comes again
	}
	return nil
}
