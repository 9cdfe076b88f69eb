// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// drain is the time between the signal that ends the webhook and the end of its server. The API server sends requests until it
// observes that the replica is not ready any more.
type drain struct {
	period  time.Duration
	logger  logr.Logger
	started atomic.Bool
}

// serving returns a context that ends a period after ctx.
func (d *drain) serving(ctx context.Context) context.Context {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer end()
		d.started.Store(true)
		d.logger.Info("Draining webhook", "period", d.period.String())
		<-time.NewTimer(d.period).C //nolint:forbidigo // machine time: the drain period
	})
	return serving
}

// Ready is a health check. It fails from the signal on.
func (d *drain) Ready(*http.Request) error {
	if d.started.Load() {
		return errors.New("the webhook shuts down")
	}
	return nil
}

// wrap returns a handler whose responses close their connections from the signal on. The API server keeps connections to a replica
// that left the endpoints of the Service, and loses the request that it sends on one while the server ends.
func (d *drain) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.started.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
