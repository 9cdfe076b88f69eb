// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sluice.dev/api/config"
)

// A component that starts before the API server and the CRDs waits for both, answers the kubelet meanwhile, names what it waits
// for once, and frees the address of its health checks.
func TestWaitForKinds(t *testing.T) {
	var served atomic.Pointer[metav1.APIResourceList]
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if list := served.Load(); list != nil {
			_ = json.NewEncoder(w).Encode(list)
			return
		}
		http.NotFound(w, nil)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // The API server does not run yet.

	health := "127.0.0.1:" + freePort(t)
	common := config.Common{Health: health}
	common.Default()
	var log bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- common.WaitForKinds(t.Context(), &rest.Config{Host: "http://" + address}, common.SetupLogging(&log), "Project", "Policy")
	}()
	waitForReadyz(t, health, "Waiting for the API server: ")

	if listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}}
	server.Start()
	defer server.Close()
	waitForReadyz(t, health, "Waiting for CustomResourceDefinitions: the API server does not serve Project, Policy of sluice.dev/v1alpha1 yet")
	served.Store(&metav1.APIResourceList{APIResources: []metav1.APIResource{{Kind: "Project"}}})
	waitForReadyz(t, health, "does not serve Policy of")
	served.Store(&metav1.APIResourceList{APIResources: []metav1.APIResource{{Kind: "Project"}, {Kind: "Policy"}}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(log.String(), "Waiting for "); lines != 2 {
		t.Errorf("%d lines, want one for each dependency\n%s", lines, log.String())
	}
	if listener, err = net.Listen("tcp", health); err != nil {
		t.Errorf("the address of the health checks is in use: %v", err)
	} else {
		listener.Close()
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// waitForReadyz waits until /readyz fails with a text, while /healthz succeeds.
func waitForReadyz(t *testing.T, address, want string) {
	t.Helper()
	get := func(path string) (int, string) {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		code, text := get("/readyz")
		if code == http.StatusInternalServerError && strings.Contains(text, want) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz = %d %q, want %q", code, text, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if code, text := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz = %d %q", code, text)
	}
}
