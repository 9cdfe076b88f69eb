// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A request is repeated while the webhook has no time for it; a refusal for another reason is passed on as it is.
func TestBusyRequestsAreRepeated(t *testing.T) {
	answers := []string{
		`Internal error occurred: failed calling webhook "pods.sluice.dev": context deadline exceeded`,
		"denied the request: busy, try again: the request's deadline passed before all policies were evaluated",
		`Internal error occurred: failed calling webhook "pods.sluice.dev": connection refused`,
		"never asked for",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), "train") {
			t.Errorf("the body is %q, %v", body, err)
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, answers[0])
		answers = answers[1:]
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return busyTransport{next} })
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = clients.CoreV1().Pods("thesis").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train"}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "connection refused") || len(answers) != 1 {
		t.Errorf("%v, left %q", err, answers)
	}
}
