// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sluice.dev/test/cluster/pki"
)

const (
	podPollInterval = 50 * time.Millisecond
	// maxResponseSize is as much of a component's "not ready" as a person may want.
	maxResponseSize = 2000
)

// newHealthProbe returns a question to a component's health endpoint: nil means ready.
func newHealthProbe(url string, ca *pki.CA, client pki.Pair) (func(context.Context) error, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.CertPEM())
	certificate, err := tls.X509KeyPair(client.Cert, client.Key)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", url, err)
	}
	asker := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
		// A connection that is kept would be one more to drain at the stop.
		DisableKeepAlives: true,
	}}
	return func(ctx context.Context) error { return checkReady(ctx, asker, url) }, nil
}

// Readyz returns a question to a component that says at /readyz, without TLS,
// whether it is ready: nil means that it is. The address is a host and a port.
func Readyz(address string) func(context.Context) error {
	asker := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error { return checkReady(ctx, asker, "http://"+address+"/readyz") }
}

func checkReady(ctx context.Context, asker *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := asker.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxResponseSize))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, response.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}

// waitForPodCreation waits until pods can be made in namespace default: for that its
// service account has to be there, which the controllers make.
func waitForPodCreation(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not there after a minute"))
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
			return fmt.Errorf("wait for service account default/default: %w; last answer: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
