// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	base "sluice.dev/api/config"
)

const (
	// endpointHeaderTimeout limits reading a request's header, and endpointIdleTimeout an idle connection.
	endpointHeaderTimeout = 32 * time.Second
	endpointIdleTimeout   = 90 * time.Second
)

var (
	errNotObserved = errors.New("the agent has not observed the GPUs yet")
	errNotSynced   = errors.New("the caches are not filled yet")
)

// listen listens on the addresses for the kubelet's health checks and for Prometheus. It returns
// functions that serve them until their ctx ends.
func (r *reconciler) listen(ctx context.Context, client *kubeClient) ([]func(context.Context) error, error) {
	health, err := listenOn(ctx, "health", r.cfg.Health, r.healthHandler(), nil)
	if err != nil || r.cfg.Metrics == base.DisabledAddress {
		return []func(context.Context) error{health}, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(newRegistry(), promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	if r.cfg.Profiling {
		handleProfiles(mux)
	}
	var handler http.Handler = mux
	var secure *tls.Config
	if r.cfg.MetricsAccess != base.MetricsOpen {
		access := &metricsAccess{client: client, log: r.log.WithName("metrics"), now: time.Now}
		handler = access.protect(mux)
		if secure, err = newSelfSignedTLS(r.cfg.NodeName); err != nil {
			return nil, err
		}
	}
	metrics, err := listenOn(ctx, "metrics", r.cfg.Metrics, handler, secure)
	return []func(context.Context) error{health, metrics}, err
}

// listenOn listens with TLS, or without if secure is nil.
func listenOn(ctx context.Context, field, address string, handler http.Handler, secure *tls.Config) (func(context.Context) error, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen (%s): %w", field, err)
	}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	return func(ctx context.Context) error {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: endpointHeaderTimeout, IdleTimeout: endpointIdleTimeout}
		if err := serveHTTP(ctx, server, listener); err != nil {
			return fmt.Errorf("serve %s: %w", field, err)
		}
		return nil
	}, nil
}

// serveHTTP serves a listener until ctx ends.
func serveHTTP(ctx context.Context, server *http.Server, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// healthHandler serves /healthz and /readyz, and each of their checks below.
func (r *reconciler) healthHandler() http.Handler {
	mux := http.NewServeMux()
	r.addChecks(mux, "/healthz", map[string]func() error{
		"ping":   func() error { return nil },
		"driver": r.hungCalls.check,
	})
	r.addChecks(mux, "/readyz", map[string]func() error{
		"caches":   func() error { return errorUnless(r.cache.synced(), errNotSynced) },
		"observed": func() error { return errorUnless(r.snapshot.Load() != nil, errNotObserved) },
	})
	return mux
}

func errorUnless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

// addChecks serves checks in the format of the API server's: all of them at path, each one below.
func (r *reconciler) addChecks(mux *http.ServeMux, path string, checks map[string]func() error) {
	all := func(w http.ResponseWriter, request *http.Request) {
		query, failed := request.URL.Query(), false
		var lines strings.Builder
		for _, name := range slices.Sorted(maps.Keys(checks)) {
			if slices.Contains(query["exclude"], name) {
				fmt.Fprintf(&lines, "[+]%s excluded: ok\n", name)
			} else if err := checks[name](); err != nil {
				failed = true
				r.log.Info("Health check failed", "path", path, "check", name, "error", err.Error())
				fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", name)
			} else {
				fmt.Fprintf(&lines, "[+]%s ok\n", name)
			}
		}
		switch {
		case failed:
			http.Error(w, lines.String()+"healthz check failed", http.StatusInternalServerError)
		case query.Has("verbose"):
			fmt.Fprint(w, lines.String()+"healthz check passed\n")
		default:
			fmt.Fprint(w, "ok")
		}
	}
	mux.HandleFunc(path, all)
	mux.HandleFunc(path+"/{$}", all)
	for name, check := range checks {
		mux.HandleFunc(path+"/"+name, func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, "internal server error: "+err.Error(), http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, "ok")
		})
	}
}
