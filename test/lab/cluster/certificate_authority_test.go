// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func openCA(t *testing.T, dir string) *CA {
	t.Helper()
	ca, err := OpenCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestCAIsReused(t *testing.T) {
	dir := t.TempDir()
	first, second := openCA(t, dir), openCA(t, dir)
	if diff := cmp.Diff(string(first.CertPEM()), string(second.CertPEM())); diff != "" {
		t.Errorf("the reopened CA differs (-first +second):\n%s", diff)
	}
	pair, err := first.Client("anna")
	if err != nil {
		t.Fatal(err)
	}
	verifyPair(t, second, pair, x509.ExtKeyUsageClientAuth)
	assertOwnerOnly(t, dir)
}

func TestBrokenCAIsNotReplaced(t *testing.T) {
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
	}{
		{"missing key", func(t *testing.T, dir string) { removeTestFile(t, dir, "ca.key") }, "ca.key: no such file"},
		{"missing certificate", func(t *testing.T, dir string) { removeTestFile(t, dir, "ca.crt") }, "ca.crt: no such file"},
		{"certificate is not PEM", func(t *testing.T, dir string) { writeKeyTestFile(t, dir, "ca.crt", "hello") }, "failed to find any PEM"},
		{"key of another CA", func(t *testing.T, dir string) {
			other := t.TempDir()
			openCA(t, other)
			key, err := os.ReadFile(filepath.Join(other, "ca.key"))
			if err != nil {
				t.Fatal(err)
			}
			writeKeyTestFile(t, dir, "ca.key", string(key))
		}, "does not match"},
		{"not a CA certificate", func(t *testing.T, dir string) {
			pair, err := openCA(t, t.TempDir()).Client("anna")
			if err != nil {
				t.Fatal(err)
			}
			writeKeyTestFile(t, dir, "ca.crt", string(pair.Cert))
			writeKeyTestFile(t, dir, "ca.key", string(pair.Key))
		}, "not a CA certificate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			openCA(t, dir)
			tt.damage(t, dir)
			if _, err := OpenCA(dir, "ca"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestServer(t *testing.T) {
	ca := openCA(t, t.TempDir())
	pair, err := ca.Server("kubernetes.default.svc", "10.96.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cert := verifyPair(t, ca, pair, x509.ExtKeyUsageServerAuth)
	for _, host := range []string{"127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1"} {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if err := cert.VerifyHostname("example.org"); err == nil {
		t.Error("the certificate is also valid for example.org")
	}
	if _, err := ca.Server("a", ""); err == nil {
		t.Error("Server accepted an empty host")
	}
}

func TestClient(t *testing.T) {
	ca := openCA(t, t.TempDir())
	pair, err := ca.Client("anna.mueller@example.org", "h2-students", "h2-all")
	if err != nil {
		t.Fatal(err)
	}
	cert := verifyPair(t, ca, pair, x509.ExtKeyUsageClientAuth)
	if cert.Subject.CommonName != "anna.mueller@example.org" {
		t.Errorf("user %q", cert.Subject.CommonName)
	}
	// In a certificate the groups are a set, in the order of their encoding.
	if diff := cmp.Diff([]string{"h2-all", "h2-students"}, slices.Sorted(slices.Values(cert.Subject.Organization))); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: certPool(ca), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client certificate is valid for a server")
	}
	if _, err := ca.Client(""); err == nil {
		t.Error("Client accepted an empty user name")
	}
}

func TestMutualTLS(t *testing.T) {
	ca, other := openCA(t, t.TempDir()), openCA(t, t.TempDir())
	server := mustSucceed(t)(ca.Server())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
		}),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{keyPair(t, server)}, ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs: certPool(ca),
		},
	}
	serving.ErrorLog = log.New(io.Discard, "", 0) // the rejected client needs no log
	go serving.ServeTLS(listener, "", "")
	defer serving.Close()

	connect := func(pair KeyPair) (string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certPool(ca), Certificates: []tls.Certificate{keyPair(t, pair)}}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	if got, err := connect(mustSucceed(t)(ca.Client("anna"))); err != nil || got != "anna" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := connect(mustSucceed(t)(ca.Peer("etcd"))); err != nil || got != "etcd" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := connect(mustSucceed(t)(other.Client("anna"))); err == nil {
		t.Errorf("a client of another CA was accepted as %q", got)
	}
}

func TestTokenKeyIsReused(t *testing.T) {
	dir := t.TempDir()
	key, public := filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.pub")
	var before []string
	for range 2 {
		if err := openTokenKey(key, public); err != nil {
			t.Fatal(err)
		}
		now := []string{readTestFile(t, key), readTestFile(t, public)}
		if before != nil {
			if diff := cmp.Diff(before, now); diff != "" {
				t.Errorf("the reopened key differs:\n%s", diff)
			}
		}
		before = now
	}
	assertOwnerOnly(t, dir)
	writeKeyTestFile(t, dir, "sa.key", "hello")
	if err := openTokenKey(key, public); err == nil || !strings.Contains(err.Error(), "sa.key: the file has no PEM block") {
		t.Errorf("invalid key: %v", err)
	}
}

func verifyPair(t *testing.T, ca *CA, pair KeyPair, usage x509.ExtKeyUsage) *x509.Certificate {
	t.Helper()
	cert := keyPair(t, pair).Leaf
	if _, err := cert.Verify(x509.VerifyOptions{Roots: certPool(ca), KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		t.Fatal(err)
	}
	return cert
}

func certPool(ca *CA) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.CertPEM())
	return roots
}

func mustSucceed(t *testing.T) func(KeyPair, error) KeyPair {
	return func(pair KeyPair, err error) KeyPair {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
}

func keyPair(t *testing.T, pair KeyPair) tls.Certificate {
	t.Helper()
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return both
}

func assertOwnerOnly(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("%d files, want 2: %v", len(entries), entries)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v (%v), want 0600", entry.Name(), info.Mode().Perm(), err)
		}
	}
}

func readTestFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func writeKeyTestFile(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func removeTestFile(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
