// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// A draining webhook answers each request and closes its connection. A client that kept one open would lose the request that it
// sends while the server ends: a POST is not sent again.
func TestDrainingWebhookClosesConnections(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	draining := &drain{period: time.Hour, logger: logr.Discard()}
	if draining.serving(ctx).Err() != nil {
		t.Fatal("the webhook does not serve")
	}
	server := httptest.NewServer(draining.wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})))
	t.Cleanup(server.Close)
	closes := func() bool {
		t.Helper()
		response, err := server.Client().Post(server.URL, "application/json", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("status %d", response.StatusCode)
		}
		return response.Close
	}
	if closes() {
		t.Error("the webhook closes a connection before it ends")
	}
	signal()
	for deadline := time.Now().Add(time.Minute); draining.Ready(nil) == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the webhook does not drain")
		}
		time.Sleep(time.Millisecond)
	}
	if !closes() {
		t.Error("a draining webhook keeps a connection")
	}
}
