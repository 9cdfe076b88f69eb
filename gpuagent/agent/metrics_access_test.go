// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// The API server decides on each token and path, once a minute for those that it allows and once in ten seconds for others. If it
// does not answer, the metrics are not served. TestMetricsNeedARight has a real API server.
func TestMetricsAccess(t *testing.T) {
	requests, broken := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		requests++
		if broken {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(http.StatusCreated)
		switch request.URL.Path {
		case "/apis/authentication.k8s.io/v1/tokenreviews":
			var review authenticationv1.TokenReview
			if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			review.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
			review.Status.Authenticated = review.Spec.Token != "unknown"
			review.Status.User.Username = review.Spec.Token
			_ = json.NewEncoder(w).Encode(review)
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			var review authorizationv1.SubjectAccessReview
			if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}
			attributes := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "prometheus" && attributes.Verb == "get" && attributes.Path == "/metrics"
			_ = json.NewEncoder(w).Encode(review)
		default:
			t.Errorf("request %s", request.URL)
		}
	}))
	defer server.Close()
	client, err := newKubeClient(&rest.Config{Host: server.URL}, "dgx-01")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	access := &metricsAccess{client: client, log: testr.New(t), now: func() time.Time { return now }}
	handler := access.protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get := func(path, authorization string) int {
		request := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		request.Header.Set("Authorization", authorization)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		return answer.Code
	}
	for _, tt := range []struct {
		name, path, authorization string
		after                     time.Duration
		broken                    bool
		code, requests            int
	}{
		{"no token", "/metrics", "", 0, false, 401, 0},
		{"no bearer", "/metrics", "Basic prometheus", 0, false, 401, 0},
		{"an unknown token", "/metrics", "Bearer unknown", 0, false, 401, 1},
		{"a user without the right", "/metrics", "Bearer student", 0, false, 403, 2},
		{"a user with the right", "/metrics", "Bearer prometheus", 0, false, 200, 2},
		{"from the cache", "/metrics", "Bearer prometheus", 0, false, 200, 0},
		{"a denial from the cache", "/metrics", "Bearer student", 0, false, 403, 0},
		{"another path", "/debug/pprof/heap", "Bearer prometheus", 0, false, 403, 2},
		{"a denial after its time", "/metrics", "Bearer student", deniedTTL, false, 403, 2},
		{"after a minute, without an API server", "/metrics", "Bearer prometheus", allowedTTL, true, 500, 1},
		{"with it again", "/metrics", "Bearer prometheus", 0, false, 200, 2},
	} {
		requests, broken, now = 0, tt.broken, now.Add(tt.after)
		if code := get(tt.path, tt.authorization); code != tt.code || requests != tt.requests {
			t.Errorf("%s: %d after %d requests, want %d after %d", tt.name, code, requests, tt.code, tt.requests)
		}
	}
}
