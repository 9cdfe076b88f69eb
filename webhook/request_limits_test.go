// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A client whose body never comes does not keep its request for longer than the limit. Guards invariant 10 of the
// design.
func TestSlowBodyEnds(t *testing.T) {
	var limits requestLimits
	server := httptest.NewServer(limits.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a body of one byte instead of 100 was served")
	})))
	defer server.Close()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil || !strings.Contains(answer, "400") {
		t.Errorf("answered %q, %v", answer, err)
	}
}

// The deadline of the body does not stay for the rest of the request: it would end its context.
func TestBodyTimeoutIsOverOnceTheBodyIsRead(t *testing.T) {
	connection := &deadlineRecorder{ResponseWriter: httptest.NewRecorder()}
	before := time.Now()
	body, err := readBody(connection, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}")))
	if err != nil || string(body) != "{}" {
		t.Errorf("body %q, %v", body, err)
	}
	if d := connection.deadlines; len(d) != 2 || d[0].Before(before.Add(bodyTimeout)) || !d[1].IsZero() {
		t.Errorf("the deadlines %v, want one in %s and then none", d, bodyTimeout)
	}
}

// deadlineRecorder is a response whose connection records the deadlines for reading.
type deadlineRecorder struct {
	http.ResponseWriter
	deadlines []time.Time
}

func (d *deadlineRecorder) SetReadDeadline(at time.Time) error {
	d.deadlines = append(d.deadlines, at)
	return nil
}

// One source has no more requests in flight than the limit, and another is served.
func TestRequestsPerSourceAreLimited(t *testing.T) {
	var limits requestLimits
	for range maxRequestsPerSource {
		if !limits.begin("10.0.0.1") {
			t.Fatal("refused below the limit")
		}
	}
	served := 0
	handler := limits.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for address, want := range map[string]int{"10.0.0.1:1234": http.StatusTooManyRequests, "10.0.0.2:1234": http.StatusOK} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
		request.RemoteAddr = address
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("%s: %d, want %d", address, recorder.Code, want)
		}
	}
	for range maxRequestsPerSource {
		limits.end("10.0.0.1")
	}
	if served != 1 || len(limits.inFlight) != 0 {
		t.Errorf("%d served, in flight %v", served, limits.inFlight)
	}
}

// With a client authority, a client without its certificate cannot call the webhook; with client names, neither can another
// client of the authority.
func TestClientAuthorityIsRequired(t *testing.T) {
	t.Run("every name", func(t *testing.T) { testClientAuthority(t, nil, true) })
	t.Run("its name", func(t *testing.T) { testClientAuthority(t, []string{"other", "kube-apiserver"}, true) })
	t.Run("its DNS name", func(t *testing.T) { testClientAuthority(t, []string{"apiserver.example.org"}, true) })
	t.Run("other names", func(t *testing.T) { testClientAuthority(t, []string{"kubelet", "kube-apiserver2"}, false) })
}

func testClientAuthority(t *testing.T, names []string, accepted bool) {
	certificate := newClientCertificate(t)
	path := filepath.Join(t.TempDir(), "client-ca.crt")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	if err := os.WriteFile(path, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	option, err := requireClientCA(path, names)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	option(server.TLS)
	server.StartTLS()
	defer server.Close()
	ask := func(certificates ...tls.Certificate) error {
		client := server.Client()
		client.Transport.(*http.Transport).TLSClientConfig.Certificates = certificates
		client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	if err := ask(); err == nil {
		t.Error("served without a certificate")
	}
	if err := ask(certificate); (err == nil) != accepted {
		t.Errorf("with a certificate of its names: %v, want accepted %t", err, accepted)
	}
	if _, err := requireClientCA(filepath.Join(t.TempDir(), "missing"), nil); err == nil || !strings.Contains(err.Error(), "clientCA") {
		t.Errorf("err = %v, want one that names clientCA", err)
	}
}

func newClientCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, DNSNames: []string{"apiserver.example.org"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
