// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// allowedTTL and deniedTTL are how long the API server's answer about a token and a path holds.
	allowedTTL = time.Minute
	deniedTTL  = 10 * time.Second
	// maxDecisions limits the answers in memory.
	maxDecisions = 64
	// reviewTimeout limits the two requests to the API server.
	reviewTimeout = 10 * time.Second
)

// metricsAccess lets clients read the metrics whose token the API server knows and allows the path, as controller-runtime does
// for Sluice's other components. It asks about one client at a time.
type metricsAccess struct {
	client *kubeClient
	log    logr.Logger
	now    func() time.Time

	mu        sync.Mutex
	decisions map[[sha256.Size]byte]decision
}

// decision is the API server's answer about a token and a path.
type decision struct {
	status int // 200, 401 or 403
	until  time.Time
}

// protect serves a handler to allowed clients only.
func (m *metricsAccess) protect(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		token, ok := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
			return
		}
		status, err := m.decide(request.Context(), token, strings.ToLower(request.Method), request.URL.Path)
		if err != nil {
			m.log.Error(err, "Failed to review access to metrics")
			status = http.StatusInternalServerError
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		handler.ServeHTTP(w, request)
	})
}

func (m *metricsAccess) decide(ctx context.Context, token, verb, path string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := sha256.Sum256([]byte(token + "\x00" + verb + "\x00" + path))
	if known, ok := m.decisions[key]; ok && m.now().Before(known.until) {
		return known.status, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	status, err := m.client.reviewAccess(ctx, token, verb, path)
	if err != nil {
		return 0, err
	}
	if m.decisions == nil || len(m.decisions) >= maxDecisions {
		m.decisions = map[[sha256.Size]byte]decision{}
	}
	ttl := deniedTTL
	if status == http.StatusOK {
		ttl = allowedTTL
	}
	m.decisions[key] = decision{status, m.now().Add(ttl)}
	return status, nil
}

// reviewAccess returns 200 if the owner of the token may send the request, 401 if the token is invalid, and else 403.
func (c *kubeClient) reviewAccess(ctx context.Context, token, verb, path string) (int, error) {
	tokenReview := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.authentication.Post().Resource("tokenreviews").Body(&tokenReview).Do(ctx).Into(&tokenReview); err != nil {
		return 0, fmt.Errorf("review token: %w", err)
	}
	if !tokenReview.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := tokenReview.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	access := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
	}}
	if err := c.authorization.Post().Resource("subjectaccessreviews").Body(&access).Do(ctx).Into(&access); err != nil {
		return 0, fmt.Errorf("review access: %w", err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// handleProfiles serves Go's profiles.
func handleProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// newSelfSignedTLS returns the configuration of a server whose clients know it by its address, as the metrics servers of
// Kubernetes' components. It does without HTTP/2, for the sake of memory.
func newSelfSignedTLS(node string) (*tls.Config, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey(node, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("issue certificate of the metrics server: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("issue certificate of the metrics server: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}
