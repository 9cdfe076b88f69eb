// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"
)

// busyTimeout is the time for which a request is repeated.
const busyTimeout = 5 * time.Minute

// RepeatBusyRequests makes the clients of the cluster repeat a request for which the webhook, which has two or three
// seconds, had no time: on a busy machine, as Kubernetes' controllers do. It is for tests that do not stop the webhook.
func (s *Sluice) RepeatBusyRequests() error {
	s.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return busyTransport{next} })
	return s.newClients()
}

type busyTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b busyTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	for began := time.Now(); ; {
		response, err := b.RoundTripper.RoundTrip(request)
		if err != nil || response.StatusCode < http.StatusBadRequest {
			return response, err
		}
		refusal, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("read the response: %w", err)
		}
		response.Body = io.NopCloser(bytes.NewReader(refusal))
		if !isBusy(refusal) || request.GetBody == nil || time.Since(began) > busyTimeout {
			return response, nil
		}
		select {
		case <-request.Context().Done():
			return response, nil
		case <-time.After(maxPollInterval):
		}
		request = request.Clone(request.Context())
		if request.Body, err = request.GetBody(); err != nil {
			return nil, err
		}
	}
}

// isBusy reports whether a refusal is for want of time, that of the API server or that of the webhook.
func isBusy(refusal []byte) bool {
	return bytes.Contains(refusal, []byte("failed calling webhook")) && bytes.Contains(refusal, []byte("context deadline exceeded")) ||
		bytes.Contains(refusal, []byte("the request's deadline passed"))
}
