// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"sluice.dev/api/config"
	"sluice.dev/gpuagent/nvml"
)

// The answers are those of the API server and of Sluice's other components: monitoring reads them.
func TestHealthChecksAnswerLikeTheAPIServer(t *testing.T) {
	broken := errors.New("no GPUs")
	r := &reconciler{log: logr.Discard()}
	mux := http.NewServeMux()
	var failure error
	r.addChecks(mux, "/readyz", map[string]func() error{
		"observed": func() error { return failure },
		"caches":   func() error { return nil },
	})
	for _, tt := range []struct {
		path    string
		failure error
		code    int
		want    string
	}{
		{"/readyz", nil, 200, "ok"},
		{"/readyz/", nil, 200, "ok"},
		{"/readyz?verbose", nil, 200, "[+]caches ok\n[+]observed ok\nhealthz check passed\n"},
		{"/readyz/observed", nil, 200, "ok"},
		{"/readyz/other", nil, 404, "404 page not found\n"},
		{"/readyz", broken, 500, "[+]caches ok\n[-]observed failed: reason withheld\nhealthz check failed\n"},
		{"/readyz?exclude=observed", broken, 200, "ok"},
		{"/readyz/observed", broken, 500, "internal server error: no GPUs\n"},
	} {
		failure = tt.failure
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, tt.path, http.NoBody))
		if answer.Code != tt.code || answer.Body.String() != tt.want {
			t.Errorf("%s: %d %q, want %d %q", tt.path, answer.Code, answer.Body, tt.code, tt.want)
		}
	}
}

// Dashboards and alerts read the metrics of client-go, Go and the process too. The kubelet and Prometheus get
// answers before the cache is filled, and an address in use is an error that names the field.
func TestEndpointsServeBeforeTheCacheIsFilled(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := used.Addr().String()
	client, err := newKubeClient(&rest.Config{Host: "127.0.0.1:1"}, "dgx-01")
	if err != nil {
		t.Fatal(err)
	}
	r := &reconciler{log: logr.Discard(), cfg: &Config{Common: config.Common{Health: "127.0.0.1:0", Metrics: address, MetricsAccess: config.MetricsOpen}}}
	r.cache = newNodeCache(client, r.onGPUNode(), r.onPod())
	r.hungCalls.library = &nvml.MonitoredLibrary{}
	if _, err := r.listen(t.Context(), client); err == nil || !strings.Contains(err.Error(), "(metrics)") || !strings.Contains(err.Error(), address) {
		t.Errorf("an address in use: %v", err)
	}
	_ = used.Close()
	endpoints, err := r.listen(t.Context(), client)
	if err != nil || len(endpoints) != 2 {
		t.Fatalf("%d endpoints, %v", len(endpoints), err)
	}
	for _, serve := range endpoints {
		go func() { _ = serve(t.Context()) }()
	}
	apiRequests.WithLabelValues("200", "GET", "test").Inc()
	t.Cleanup(apiRequests.Reset)
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rest_client_requests_total", "process_resident_memory_bytes", "go_goroutines"} {
		if !strings.Contains(string(text), "\n"+want) {
			t.Errorf("no %s among the metrics", want)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/healthz/ping": 200, "/healthz/driver": 200, "/readyz": 500, "/readyz/caches": 500} {
		answer := httptest.NewRecorder()
		r.healthHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if answer.Code != want {
			t.Errorf("%s: %d %s, want %d", path, answer.Code, answer.Body, want)
		}
	}
}

// The agent ends with the error of the goroutine that fails, while the API server does not answer.
func TestRunEndsWithTheErrorOfAnEndpoint(t *testing.T) {
	client, err := newKubeClient(&rest.Config{Host: "127.0.0.1:1"}, "dgx-01")
	if err != nil {
		t.Fatal(err)
	}
	r := &reconciler{log: logr.Discard()}
	r.cache = newNodeCache(client, r.onGPUNode(), r.onPod())
	broken := errors.New("broken")
	lasting := func(ctx context.Context) error { <-ctx.Done(); return nil }
	if err := r.run(t.Context(), []func(context.Context) error{lasting, func(context.Context) error { return broken }}); !errors.Is(err, broken) {
		t.Errorf("run = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.run(ctx, []func(context.Context) error{lasting}); err != nil {
		t.Errorf("run after its end = %v", err)
	}
}
