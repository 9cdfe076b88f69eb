// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A request is repeated with its body while the webhook has no time for it; a refusal for another reason is passed on as it is.
func TestBusyRequestsAreRepeated(t *testing.T) {
	answers := []string{
		`Internal error occurred: failed calling webhook "pods.sluice.dev": context deadline exceeded`,
		"denied the request: the request's deadline passed before all policies were evaluated: try again in a moment",
		"denied the request: the project is suspended",
		"never asked for",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != "pod" {
			t.Errorf("the body is %q, %v", body, err)
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, answers[0])
		answers = answers[1:]
	}))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("pod"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: busyTransport{http.DefaultTransport}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if refusal, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(refusal), "suspended") || len(answers) != 1 {
		t.Errorf("%q, %v, left %q", refusal, err, answers)
	}
}
