// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const (
	// waitPollInterval is the interval at which a component checks what it waits for, in machine time.
	waitPollInterval = time.Second
	// waitLogInterval is the interval at which a component logs again what it waits for, in machine time.
	waitLogInterval = time.Minute
	// waitRequestTimeout limits one request while a component waits.
	waitRequestTimeout = 10 * time.Second
	// maxDiscoverySize limits the API server's list of Sluice's kinds, in bytes.
	maxDiscoverySize = 1 << 20
)

// WaitForKinds waits until the API server answers and serves kinds of sluice.dev, so that the components can start in any
// order. Meanwhile /healthz succeeds, and /readyz fails with what it waits for. It returns nil if ctx ends first, and an error if
// the address of the health checks cannot be used.
func (c *Common) WaitForKinds(ctx context.Context, connection *rest.Config, logger logr.Logger, kinds ...string) error {
	client, err := rest.HTTPClientFor(connection)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(connection)
	if err != nil {
		return fmt.Errorf("address of the API server: %w", err)
	}
	url := base.JoinPath("apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version).String()
	waiting := waitingFor{logger: logger.WithValues("server", connection.Host)}
	if waiting.update(missingKinds(ctx, client, url, kinds)) {
		return nil
	}
	stop, err := waiting.serve(ctx, c.Health)
	if err != nil {
		return err
	}
	defer stop()
	ticker := time.NewTicker(waitPollInterval) //nolint:forbidigo // machine time: the interval of checks
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if waiting.update(missingKinds(ctx, client, url, kinds)) {
				return nil
			}
		}
	}
}

// dependency is what a component waits for.
type dependency struct {
	message string // constant; empty for none
	detail  string
}

func missingKinds(ctx context.Context, client *http.Client, url string, kinds []string) dependency {
	served, err := servedKinds(ctx, client, url)
	if err != nil {
		return dependency{"Waiting for the API server", err.Error()}
	}
	missing := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return slices.Contains(served, kind) })
	if len(missing) == 0 {
		return dependency{}
	}
	return dependency{"Waiting for CustomResourceDefinitions", "the API server does not serve " + strings.Join(missing, ", ") +
		" of " + v1alpha1.GroupVersion.String() + " yet: apply the manifests"}
}

func servedKinds(ctx context.Context, client *http.Client, url string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, waitRequestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, nil
	default:
		return nil, errors.New("GET " + url + ": " + response.Status)
	}
	var list metav1.APIResourceList
	if err := json.NewDecoder(io.LimitReader(response.Body, maxDiscoverySize)).Decode(&list); err != nil {
		return nil, fmt.Errorf("GET %s: %w", url, err)
	}
	var kinds []string
	for _, resource := range list.APIResources {
		kinds = append(kinds, resource.Kind)
	}
	return kinds, nil
}

// waitingFor logs what a component waits for, and answers its health checks. It is safe for concurrent use.
type waitingFor struct {
	logger logr.Logger

	mu      sync.Mutex
	current dependency
	logged  time.Time
}

// update reports whether the component waits no longer. It logs what it waits for, once and then each waitLogInterval.
func (w *waitingFor) update(d dependency) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := policytime.MachineNow()
	if d.message != "" && (d.message != w.current.message || now.Sub(w.logged) >= waitLogInterval) {
		w.logger.Info(d.message, "detail", d.detail)
		w.logged = now
	}
	w.current = d
	return d.message == ""
}

// serve answers health checks at an address until the returned function is called. The address is free again then.
func (w *waitingFor) serve(ctx context.Context, address string) (stop func(), err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(response http.ResponseWriter, _ *http.Request) { fmt.Fprint(response, "ok") })
	mux.HandleFunc("/readyz", func(response http.ResponseWriter, _ *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		http.Error(response, w.current.message+": "+w.current.detail, http.StatusInternalServerError)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: waitRequestTimeout}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen (health): %w", err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	return func() { _ = server.Close(); <-ended }, nil
}
