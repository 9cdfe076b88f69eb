// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	podPollInterval = 50 * time.Millisecond
	// maxResponseSize limits, in bytes, how much of a component's response an error shows.
	maxResponseSize = 2000
)

// newHealthProbe returns a function that calls a component's health endpoint; nil means
// ready.
func newHealthProbe(url string, ca *CA, identity KeyPair) (func(context.Context) error, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.CertPEM())
	certificate, err := tls.X509KeyPair(identity.Cert, identity.Key)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", url, err)
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
		// A kept connection would delay the shutdown of the component.
		DisableKeepAlives: true,
	}}
	return func(ctx context.Context) error { return checkReady(ctx, client, url) }, nil
}

// Readyz returns a function that calls a component's /readyz without TLS; nil means ready.
// The address is a host and a port.
func Readyz(address string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error { return checkReady(ctx, client, "http://"+address+"/readyz") }
}

func checkReady(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponseSize))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// waitForPodCreation waits until pods can be created in namespace default. They need its
// service account, which the controllers create.
func waitForPodCreation(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, defaultReadyTimeout, fmt.Errorf("not created within %s", defaultReadyTimeout))
	defer cancel()
	tick := time.NewTicker(podPollInterval)
	defer tick.Stop()
	for {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for service account default/default: %w; last error: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
