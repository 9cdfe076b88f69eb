// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// NewSource returns a source that sends requests to a cluster.
func NewSource(config *rest.Config) (Source, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the checks are a few dozen requests, one after the other
	config.WarningHandler = rest.NoWarnings{}
	scheme, err := NewScheme()
	if err != nil {
		return Source{}, err
	}
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return Source{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return Source{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return Source{
		Reader: reader, Discovery: discover, Resources: discover, Served: dialCertificates,
		Create: func(ctx context.Context, object client.Object) Probe { return createDryRun(ctx, config, object) },
	}, nil
}

// warningRecorder records the warnings of responses.
type warningRecorder struct {
	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, text)
}

// createDryRun sends an object to the API server, which evaluates it and does not store it.
func createDryRun(ctx context.Context, config *rest.Config, object client.Object) Probe {
	var recorder warningRecorder
	config = rest.CopyConfig(config)
	config.WarningHandler = &recorder
	scheme, err := NewScheme()
	if err != nil {
		return Probe{Made: true, Err: err}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return Probe{Made: true, Err: err}
	}
	// The first request of a client also reads the served kinds, which must not count.
	if _, err := c.RESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("Project").GroupKind()); err != nil {
		return Probe{Made: true, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	begun := policytime.MachineNow()
	err = c.Create(ctx, object, client.DryRunAll, client.FieldOwner(v1alpha1.FieldManagerCLI))
	return Probe{Made: true, Err: err, Warnings: recorder.warnings, Latency: policytime.MachineNow().Sub(begun)}
}

// dialTimeout limits the connection to a webhook at a URL.
const dialTimeout = 5 * time.Second

// dialCertificates returns the certificates that a server presents. It trusts none of them, and sends nothing.
func dialCertificates(ctx context.Context, address string) ([]byte, error) {
	target, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	host := target.Host
	if target.Port() == "" {
		host = net.JoinHostPort(target.Hostname(), "443")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // it only reads what is served
	connection, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	secured, ok := connection.(*tls.Conn)
	if !ok {
		return nil, errors.New("no TLS connection")
	}
	var text []byte
	for _, certificate := range secured.ConnectionState().PeerCertificates {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})...)
	}
	return text, nil
}
