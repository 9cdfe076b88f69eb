// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"sluice.dev/api/policytime"
)

const (
	// maxRequestsPerSource is the number of requests of one address at a time. An API server stays far below it.
	maxRequestsPerSource = 512
	// bodyTimeout is the time in which the body of a request must arrive, in machine time: the API server gives up
	// after 2 to 3 seconds.
	bodyTimeout = 2 * time.Second
	// maxBodyBytes is the size of a body: two objects of the largest size that etcd stores, and the rest of a review.
	maxBodyBytes = 7 << 20
	// maxAnnouncedBytes is how much memory a request gets for the length that it announces, before its body arrives.
	maxAnnouncedBytes = 64 << 10
)

// requestLimits keeps one source of requests from taking what the others need.
type requestLimits struct {
	mu       sync.Mutex
	inFlight map[string]int // by address
}

// wrap returns a handler that refuses requests beyond the limits.
func (l *requestLimits) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		source, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			source = r.RemoteAddr
		}
		if !l.begin(source) {
			http.Error(w, fmt.Sprintf("%d requests from this address are in flight already: try again in a moment", maxRequestsPerSource), http.StatusTooManyRequests)
			return
		}
		defer l.end(source)
		body, err := readBody(w, r)
		if err != nil {
			http.Error(w, fmt.Sprintf("read the request: %v", err), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// readBody reads a whole body within bodyTimeout. A deadline that stays would end the request's context as well.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	setDeadline := func(at time.Time) error {
		if err := connection.SetReadDeadline(at); !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil // without a connection, as in tests
	}
	if err := setDeadline(policytime.MachineNow().Add(bodyTimeout)); err != nil {
		return nil, err
	}
	// With the length that the client announced, the buffer does not grow step by step; only a small one is believed.
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), maxAnnouncedBytes)) + bytes.MinRead)
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBodyBytes)); err != nil {
		return nil, err // the deadline stays: the server would wait for the rest of the body
	}
	return body.Bytes(), setDeadline(time.Time{})
}

func (l *requestLimits) begin(source string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[source] >= maxRequestsPerSource {
		return false
	}
	if l.inFlight == nil {
		l.inFlight = map[string]int{}
	}
	l.inFlight[source]++
	return true
}

func (l *requestLimits) end(source string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[source]--; l.inFlight[source] == 0 {
		delete(l.inFlight, source)
	}
}

// requireClientCA makes the server accept only clients with a certificate of this authority, which is a file in PEM
// form, and with one of the names, if any.
func requireClientCA(path string, names []string) (func(*tls.Config), error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("clientCA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("clientCA: %s holds no certificate in PEM form", path)
	}
	return func(c *tls.Config) {
		c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
		// VerifyConnection runs for resumed sessions too.
		c.VerifyConnection = func(state tls.ConnectionState) error { return checkClientName(state.PeerCertificates[0], names) }
	}, nil
}

func checkClientName(client *x509.Certificate, names []string) error {
	if len(names) == 0 || slices.Contains(names, client.Subject.CommonName) ||
		slices.ContainsFunc(client.DNSNames, func(name string) bool { return slices.Contains(names, name) }) {
		return nil
	}
	return fmt.Errorf("the client's certificate has the common name %q and the DNS names %q; clientNames allows %q",
		client.Subject.CommonName, client.DNSNames, names)
}
