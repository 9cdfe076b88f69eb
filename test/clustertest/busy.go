// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"bytes"
	"io"
	"net/http"
)

// RepeatBusyRequests makes the clients of the cluster repeat a request for which the webhook, which has two or three
// seconds, had no time: on a busy machine, as Kubernetes' controllers do. It is for tests that do not stop the webhook.
func (s *Sluice) RepeatBusyRequests() error {
	s.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return busyTransport{next} })
	return s.newClients()
}

// busyTransport adds to such a refusal the header for which client-go repeats the request, up to ten times.
type busyTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b busyTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode < http.StatusInternalServerError && response.StatusCode != http.StatusTooManyRequests {
		return response, err
	}
	refusal, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(refusal))
	if bytes.Contains(refusal, []byte("failed calling webhook")) && bytes.Contains(refusal, []byte("context deadline exceeded")) ||
		bytes.Contains(refusal, []byte("busy, try again")) { // for the API server, or for Sluice's webhook
		response.Header.Set("Retry-After", "1")
	}
	return response, nil
}
